"""The data of all clients, as rows of one data set: stored one client after the other, or a function of the client."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import overload

import numpy as np
import torch

from isfl.data.dataset import Dataset
from isfl.sampling import Indices


class Population(Sequence[Dataset]):
    """K clients, numbered from 0, whose samples are rows of `data`."""

    data: Dataset

    @abstractmethod
    def __len__(self) -> int:
        """Return K."""

    @abstractmethod
    def size(self, client: int) -> int:
        """Return the number of samples of a client."""

    @abstractmethod
    def indices(self, client: int) -> Indices:
        """Return the rows of `data` that a client has, in ascending order."""

    @property
    @abstractmethod
    def parts(self) -> Iterable[Dataset]:
        """Data sets that together hold every sample there is, for checksums."""

    @overload
    def __getitem__(self, index: int) -> Dataset: ...
    @overload
    def __getitem__(self, index: slice) -> list[Dataset]: ...
    def __getitem__(self, index: int | slice) -> Dataset | list[Dataset]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"client {index} of {len(self)}")
        return self._of(index)

    def class_counts(self, client: int) -> np.ndarray:
        """Return (C,) the samples per class of a client."""
        return np.bincount(self.data.labels.numpy()[self.indices(client)], minlength=self.data.num_classes)

    def _of(self, client: int) -> Dataset:
        return self.data.subset(self.indices(client))


class StoredPopulation(Population):
    """Clients one after the other: client `k` alone has the rows `bounds[k] .. bounds[k + 1]`."""

    def __init__(self, data: Dataset, bounds: np.ndarray) -> None:
        self.data, self.bounds = data, bounds

    @classmethod
    def of(cls, clients: Sequence[Dataset]) -> StoredPopulation:
        inputs, labels = torch.cat([c.stored() for c in clients]), torch.cat([c.labels for c in clients])
        sizes = [len(client) for client in clients]
        return cls(replace(clients[0], inputs=inputs, labels=labels), np.cumsum([0, *sizes]))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def size(self, client: int) -> int:
        return int(self.bounds[client + 1] - self.bounds[client])

    def indices(self, client: int) -> Indices:
        return np.arange(self.bounds[client], self.bounds[client + 1])

    @property
    def parts(self) -> Iterable[Dataset]:
        return self

    def _of(self, client: int) -> Dataset:
        return self.data.rows(int(self.bounds[client]), int(self.bounds[client + 1]))
