"""Labelled samples in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def joined(parts: Sequence[Dataset]) -> Dataset:
    """One data set of all."""
    inputs, labels = torch.cat([p.inputs for p in parts]), torch.cat([p.labels for p in parts])
    return Dataset(inputs, labels, parts[0].num_classes)


def scaled(inputs: Tensor) -> Tensor:
    """Bytes to [-1, 1], anything else untouched; images with channels last, as convolutions like them."""
    values = inputs.float() / 127.5 - 1.0 if inputs.dtype == torch.uint8 else inputs
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values
