"""Virtual clients: each a small view into shared data, computed when it is asked for.

The label mix of a client is drawn from a Dirichlet distribution: Hsu, Qi, Brown, "Measuring the Effects of
Non-Identical Data Distribution for Federated Visual Classification", 2019. There the clients divide the data; here
clients may share samples, so that there can be more clients than samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
from pydantic import Field

from isfl.data.dataset import Dataset
from isfl.data.population import Population
from isfl.data.splits.base import Pool, Split, pool_of
from isfl.errors import UserError
from isfl.randomness import Purpose, generator
from isfl.sampling import Indices

MOST_ASSIGNED = 100_000
"""Clients whose samples are listed at once, for a diagnosis; a run lists none."""


class VirtualSplit(Split):
    """Any number of clients that share the data: the samples of a client are a function of the seed and the client.

    Each client draws its label mix from Dirichlet(alpha), and its samples inside the classes. It holds no sample twice;
    clients may hold the same one. Nothing is stored per client.
    """

    kind: Literal["virtual"] = "virtual"
    clients: int = Field(10, ge=1, le=2**31, description="number of clients, K; a million need no more memory than ten")
    samples_per_client: int = Field(50, ge=1, description="samples per client, |D_k|")
    alpha: float = Field(0.2, gt=0, le=1e6, description="concentration: small is severe skew, large is none")

    def assign(self, pool: Pool) -> list[Indices]:
        if self.clients > MOST_ASSIGNED:
            raise UserError(
                f"split.clients = {self.clients}: this lists the samples of every client; choose {MOST_ASSIGNED} or "
                "fewer"
            )
        views = Views(self, pool)
        return [views.of(client) for client in range(self.clients)]

    def population(self, train: Dataset, available: Indices, seed: int) -> Population:
        views = Views(self, pool_of(train.labels.numpy(), available, seed, train.num_classes))
        return VirtualPopulation(self.clients, train.subset(available), views)


class Views:
    """The samples of each client, as positions in the pool."""

    def __init__(self, split: VirtualSplit, pool: Pool) -> None:
        self.split, self.seed = split, pool.seed
        counts = np.bincount(pool.labels, minlength=pool.classes)
        rarest = int(counts.argmin())
        if counts[rarest] < split.samples_per_client:
            raise UserError(
                f"split.samples_per_client = {split.samples_per_client}: class {rarest} has {counts[rarest]} samples "
                "beside the public set, and a client may hold that class alone; lower split.samples_per_client, or "
                "leave the class out"
            )
        self.members = np.split(np.argsort(pool.labels, kind="stable"), np.cumsum(counts)[:-1])

    def of(self, client: int) -> Indices:
        """Return the positions of a client's samples, in ascending order."""
        rng = generator(self.seed, Purpose.SPLIT, client=client)
        mix = rng.dirichlet(np.full(len(self.members), self.split.alpha))
        counts = rng.multinomial(self.split.samples_per_client, mix)
        drawn = [rng.choice(self.members[i], counts[i], replace=False) for i in np.flatnonzero(counts)]
        return np.sort(np.concatenate(drawn))


class VirtualPopulation(Population):
    """Clients that are views into shared data; memory does not depend on how many there are."""

    def __init__(self, clients: int, data: Dataset, views: Views) -> None:
        self.clients, self.data, self.views = clients, data, views

    def __len__(self) -> int:
        return self.clients

    def size(self, client: int) -> int:
        return self.views.split.samples_per_client

    def indices(self, client: int) -> Indices:
        return self.views.of(client)

    @property
    def parts(self) -> Iterable[Dataset]:
        return [self.data]
