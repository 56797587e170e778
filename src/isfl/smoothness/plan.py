"""What the steps of an estimate hand to each other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from isfl.theory.arrays import Array

Method = Literal["exact", "class-mean", "last-layer"]

MEMORY = 256 << 20
"""Bytes the estimator may use for gradients and activations (one sample of a very large model may need more)."""

LARGEST = 50
"""Samples in one pass at most: ten parts of the paper's 500. More make nothing faster, leave fewer parts to share, and
their activations no longer fit into memory that the allocator keeps: it would ask for fresh pages again and again."""

Part = range | tuple[int, ...]
"""Places in `D_L`."""


@dataclass(frozen=True)
class Division:
    """`D_L` in parts. A function of model, data and memory alone: who does the work does not change the bits."""

    parts: tuple[Part, ...]
    batched: bool = True
    """Whether the rules for whole batches are believed for this architecture (of interest to `exact` alone)."""
    largest: int = LARGEST
    """Samples in one pass at most, where a part may be larger (of interest to `class-mean` alone)."""


@dataclass(frozen=True)
class Plan:
    """Everything that is decided once for an estimate; small, and without models or data."""

    method: Method
    num_classes: int
    samples: int
    division: Division

    def __len__(self) -> int:
        """Parts to be measured."""
        return len(self.division.parts)


@dataclass(frozen=True)
class Measurements:
    """One part's squared gradient differences."""

    squares: Array
    """(K, m) `||grad(theta^k) - grad(theta)||^2` in double precision."""
    labels: np.ndarray
    """(m,) the class each measurement belongs to."""


class Estimator(Protocol):
    """A module that knows one method."""

    def divide(self, model: nn.Module, inputs: Tensor, labels: Tensor, memory: int) -> Division:
        """Decide once; the data is checked and the model in eval mode."""

    def measure(
        self,
        division: Division,
        part: Part,
        local_models: Sequence[nn.Module],
        global_model: nn.Module,
        inputs: Tensor,
        labels: Tensor,
    ) -> Measurements:
        """Measure one part; `global_model` is in eval mode, the local models are to be put there one by one."""

    def evaluations(self, models: int, samples: int) -> int:
        """Gradients of single samples that the work amounts to."""


def chosen(data: Tensor, part: Part) -> Tensor:
    """The samples of a part, in the memory format of the data."""
    if isinstance(part, range):
        return data[part.start : part.stop]
    some = data[torch.tensor(part)]
    last = data.dim() == 4 and data.is_contiguous(memory_format=torch.channels_last)
    return some.contiguous(memory_format=torch.channels_last) if last else some


def slices(samples: int, size: int) -> tuple[range, ...]:
    """Neighbouring samples, at most `size` at a time, about as many each time: a small rest would cost a whole pass."""
    parts = -(-samples // size)
    bounds = [samples * part // parts for part in range(parts + 1)]
    return tuple(itertools.starmap(range, itertools.pairwise(bounds)))


def fitting(memory: int, each: int) -> int:
    """How many samples of `each` bytes fit into memory, between one and `LARGEST`."""
    return max(1, min(LARGEST, memory // max(1, each)))
