"""Dirichlet label skew: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019.

There each client draws its shares over classes. Here each class draws its shares over clients, so that client sizes
differ, as in Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", ICML 2019.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from isfl.data.splits.base import Pool, SizedSplit
from isfl.sampling import Indices


class DirichletSplit(SizedSplit):
    """Divide each class among the clients by shares drawn from Dirichlet(alpha); client sizes differ."""

    kind: Literal["dirichlet"] = "dirichlet"
    samples_per_client: int = Field(500, ge=1, description="mean number of samples per client")
    alpha: float = Field(0.2, gt=0, le=1e6, description="concentration: small is severe skew, large is none")

    def assign(self, pool: Pool) -> list[Indices]:
        rng = pool.generator()
        drawn = self.drawn(pool, rng)  # at random: the pool may be sorted, and its first samples of one class
        labels = pool.labels[drawn]
        parts: list[list[Indices]] = [[] for _ in range(self.clients)]
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            cuts = np.cumsum(rng.dirichlet(np.full(self.clients, self.alpha)))[:-1]
            for k, piece in enumerate(np.split(members, (cuts * len(members)).astype(int))):
                parts[k].append(piece)
        return _without_empty([drawn[np.concatenate(pieces)] for pieces in parts])


def _without_empty(clients: list[Indices]) -> list[Indices]:
    """Give each client without samples one sample of the client that has most."""
    for k, own in enumerate(clients):
        if len(own) == 0:
            largest = max(range(len(clients)), key=lambda other: len(clients[other]))
            clients[k], clients[largest] = clients[largest][:1], clients[largest][1:]
    return clients
