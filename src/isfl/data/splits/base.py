"""What a split offers: its settings, which client gets which samples, and what it changes about a client's data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from isfl.data.dataset import Dataset
from isfl.data.population import Population, StoredPopulation
from isfl.errors import UserError
from isfl.randomness import Purpose, generator
from isfl.sampling import Indices
from isfl.schema import Part


@dataclass(frozen=True)
class Pool:
    """The samples that clients can get."""

    labels: np.ndarray
    """(N,) their classes."""
    of: int
    """Number of samples in the training data, public ones included."""
    seed: int
    classes: int = 0
    """Number of classes, if it is more than the labels show."""

    def generator(self) -> np.random.Generator:
        """Return a new generator for this split; each call starts the same stream again."""
        return generator(self.seed, Purpose.SPLIT)


class Split(Part):
    """The base of all splits.

    A split always terminates and gives each client at least one sample, or raises a `UserError` that says why not.
    No sample is given out twice unless a setting asks for it.
    """

    kind: str

    @abstractmethod
    def assign(self, pool: Pool) -> list[Indices]:
        """Return, for each client, the positions of its samples in the pool."""

    def population(self, train: Dataset, available: Indices, seed: int) -> Population:
        """Return the clients' data, from the training samples at `available`."""
        clients = self.rows(pool_of(train.labels.numpy(), available, seed, train.num_classes), available)
        return self.transformed(stored(train, clients), seed)

    def rows(self, pool: Pool, available: Indices) -> list[Indices]:
        """Return, for each client, the rows of the training data that it gets; the pool has those at `available`."""
        return [available[np.sort(positions)] for positions in self.assign(pool)]

    def transformed(self, clients: StoredPopulation, seed: int) -> StoredPopulation:
        """Return the clients' data as they see it; most splits leave it unchanged."""
        return clients


def pool_of(labels: np.ndarray, available: Indices, seed: int, classes: int) -> Pool:
    """Return the pool that consists of the training samples at `available`; `labels` are those of all."""
    return Pool(labels[available], len(labels), seed, classes)


def stored(train: Dataset, clients: Sequence[Indices]) -> StoredPopulation:
    """Return clients that each have a copy of these training samples."""
    bounds = np.cumsum([0, *(len(indices) for indices in clients)])
    return StoredPopulation(train.subset(np.concatenate(clients)), bounds)


class SizedSplit(Split):
    """The base of the splits that draw `clients * samples_per_client` samples from the pool."""

    clients: int = Field(10, ge=1, description="number of clients, K")
    samples_per_client: int = Field(500, ge=1, description="samples per client, |D_k|")

    def drawn(self, pool: Pool, rng: np.random.Generator) -> Indices:
        """Return the positions of all clients' samples together, in random order."""
        total, available = self.clients * self.samples_per_client, len(pool.labels)
        if total > available:
            raise UserError(
                f"split asks for {self.clients} x {self.samples_per_client} = {total} samples, the data has "
                f"{available} beside the public set; lower split.clients or split.samples_per_client"
            )
        return rng.permutation(available)[:total]


class ShardedSplit(Split):
    """The base of the splits that cut the sorted pool into shards of equal size."""

    clients: int = Field(10, ge=1, description="number of clients, K")
    shards_per_client: int = Field(2, ge=1, description="shards per client")
    shard_size: int = Field(250, ge=1, description="samples per shard; the paper has 500")
