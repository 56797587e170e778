"""Labelled samples in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from torch import Tensor

from isfl.sampling import Indices


@dataclass(frozen=True)
class Dataset:
    """Inputs and labels of a classification problem.

    `inputs` is (N, ...): bytes for images, which `batch` scales to [-1, 1], or floats or whole numbers (tokens),
    which are used as they are. `labels` is (N,) with values in `0 .. num_classes - 1`.
    """

    inputs: Tensor
    labels: Tensor
    num_classes: int

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Indices) -> Dataset:
        """The samples at `indices`, as a data set of its own."""
        rows = torch.from_numpy(np.ascontiguousarray(indices))
        return Dataset(self.inputs[rows], self.labels[rows], self.num_classes)

    def rows(self, start: int, stop: int) -> Dataset:
        """Consecutive samples, looked at in place."""
        return Dataset(self.inputs[start:stop], self.labels[start:stop], self.num_classes)

    def batch(self, indices: Indices | slice) -> tuple[Tensor, Tensor]:
        """Model inputs and labels at `indices`."""
        rows = indices if isinstance(indices, slice) else torch.from_numpy(indices)
        return scaled(self.inputs[rows]), self.labels[rows]

    def everything(self) -> tuple[Tensor, Tensor]:
        return self.batch(slice(None))

    @property
    def class_counts(self) -> np.ndarray:
        """(C,) samples per class."""
        return np.bincount(self.labels.numpy(), minlength=self.num_classes)


class Population(Sequence[Dataset]):
    """The data sets of all clients, one behind the other in one data set: client `k` has the rows
    `bounds[k] .. bounds[k + 1]`."""

    def __init__(self, data: Dataset, bounds: np.ndarray) -> None:
        self.data, self.bounds = data, bounds

    @classmethod
    def of(cls, clients: Sequence[Dataset]) -> Population:
        inputs, labels = torch.cat([c.inputs for c in clients]), torch.cat([c.labels for c in clients])
        sizes = [len(client) for client in clients]
        return cls(Dataset(inputs, labels, clients[0].num_classes), np.cumsum([0, *sizes]))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, index: int) -> Dataset: ...
    @overload
    def __getitem__(self, index: slice) -> list[Dataset]: ...
    def __getitem__(self, index: int | slice) -> Dataset | list[Dataset]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"client {index} of {len(self)}")
        return self.data.rows(int(self.bounds[index]), int(self.bounds[index + 1]))


def scaled(inputs: Tensor) -> Tensor:
    """Bytes to [-1, 1], anything else untouched; images with channels last, as convolutions like them."""
    values = inputs.float() / 127.5 - 1.0 if inputs.dtype == torch.uint8 else inputs
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values
