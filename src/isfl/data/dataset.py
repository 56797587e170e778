"""Labelled samples, in memory or in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from isfl.data.stored import StoredInputs
from isfl.sampling import Indices

BatchTransform = Callable[[Tensor], Tensor]
"""From a batch of inputs as they are stored to another of the same shape and type."""


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation of each channel; for images, of pixels between 0 and 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Dataset:
    """Inputs and labels of a classification problem.

    Parameters
    ----------
    inputs
        (N, ...): bytes for images, which `batch` scales to [-1, 1], or floats or whole numbers (tokens), which are used
        as they are. Data sets larger than memory have their inputs in a file.
    labels
        (N,) with values in `0 .. num_classes - 1`.
    num_classes
        C.
    normalization
        Mean and standard deviation of each channel, by which `batch` normalises bytes and floats instead.

    Examples
    --------
    >>> import torch
    >>> from isfl import Dataset
    >>> images = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1)
    >>> data = Dataset(images, torch.tensor([0, 2]), num_classes=3)
    >>> data.class_counts
    array([1, 0, 1])
    >>> data.batch(slice(None))[0].flatten()
    tensor([-1.,  1.])
    """

    inputs: Tensor | StoredInputs
    labels: Tensor
    num_classes: int
    normalization: Normalization | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Indices) -> Dataset:
        """Return a copy of the samples at `indices`; inputs in a file stay there."""
        rows = torch.from_numpy(np.ascontiguousarray(indices))
        return replace(self, inputs=_viewed(self.inputs, rows), labels=self.labels[rows])

    def rows(self, start: int, stop: int) -> Dataset:
        """Return consecutive samples without copying them."""
        rows = slice(start, stop)
        return replace(self, inputs=_viewed(self.inputs, rows), labels=self.labels[rows])

    def stored(self, rows: slice = slice(None)) -> Tensor:
        """Return inputs as they are stored, in memory."""
        return self.inputs[rows]

    def in_memory(self) -> Dataset:
        """Return the same samples, read from their file if they are in one."""
        return replace(self, inputs=self.stored())

    def batch(self, indices: Indices | slice, transform: BatchTransform | None = None) -> tuple[Tensor, Tensor]:
        """Return model inputs and labels at `indices`; `transform` is applied to stored inputs, before scaling."""
        rows = indices if isinstance(indices, slice) else torch.from_numpy(indices)
        inputs = self.inputs[rows] if transform is None else transform(self.inputs[rows])
        return scaled(inputs, self.normalization), self.labels[rows]

    def everything(self) -> tuple[Tensor, Tensor]:
        return self.batch(slice(None))

    @property
    def class_counts(self) -> np.ndarray:
        """(C,) samples per class."""
        return np.bincount(self.labels.numpy(), minlength=self.num_classes)


def _viewed(inputs: Tensor | StoredInputs, rows: slice | Tensor) -> Tensor | StoredInputs:
    return inputs.view(rows) if isinstance(inputs, StoredInputs) else inputs[rows]


def scaled(inputs: Tensor, normalization: Normalization | None = None) -> Tensor:
    """Return model inputs: bytes scaled to [-1, 1] and other types unchanged, or all normalised by channel.

    Images get their channels last in memory, which is fastest for convolutions on a CPU.
    """
    image = inputs.dtype == torch.uint8
    if normalization is None:
        values = inputs.float().div_(127.5).sub_(1.0) if image else inputs  # in place: large images are large floats
    else:
        channels = (-1, *(1 for _ in inputs.shape[2:]))
        mean, std = (torch.tensor(part).view(channels) for part in (normalization.mean, normalization.std))
        values = ((inputs.float() / 255.0 if image else inputs) - mean) / std
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values
