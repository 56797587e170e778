"""What the steps of an estimate pass to each other, and what an estimator consists of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from isfl.smoothness.samples import Loss, Part, Samples
from isfl.theory.arrays import Array

MEMORY = 256 << 20
"""Bytes the estimator may use for gradients and activations (one sample of a very large model may need more)."""

LARGEST = 50
"""The most samples in one pass: the paper's 500 make ten parts. Larger passes are not faster and leave fewer parts to
share between workers. Their activations exceed the memory that the allocator keeps: each pass would get fresh pages."""


@dataclass(frozen=True)
class Division:
    """`D_L` in parts. It depends on model, data, loss and memory alone, so the number of workers does not change the
    bits."""

    parts: tuple[Part, ...]
    batched: bool = True
    """Whether the rules for whole batches hold for this architecture (used by `exact` only)."""
    largest: int = LARGEST
    """The most samples in one pass, where a part may be larger (used by `class-mean` only)."""


@dataclass(frozen=True)
class Plan:
    """Everything that is decided once per estimate; small, and without models or data."""

    method: str
    num_classes: int
    samples: int
    division: Division
    loss: Loss

    def __len__(self) -> int:
        """Return the number of parts to measure."""
        return len(self.division.parts)


@dataclass(frozen=True)
class Measurements:
    """The squared gradient differences of one part."""

    squares: Array
    """(K, m) `||grad(theta^k) - grad(theta)||^2` in double precision."""
    labels: np.ndarray
    """(m,) the class each measurement belongs to."""


@dataclass(frozen=True)
class Estimator:
    """One way to measure `L`: a file of this package defines it as `ESTIMATOR`."""

    name: str
    """What users write to choose it."""
    meaning: str
    """What it measures, in one phrase for the documentation."""
    divide: Callable[[nn.Module, Samples, int], Division]
    """From the global model, `D_L` and bytes of memory to parts. The data is checked, the model in eval mode."""
    measure: Callable[[Division, Part, Sequence[nn.Module], nn.Module, Samples], Measurements]
    """Measure one part. The global model is in eval mode; `measure` puts each local model into eval mode in turn."""
    evaluations: Callable[[int, int], int]
    """From the number of models and samples to the equivalent number of single-sample gradients."""


def slices(samples: int, size: int) -> tuple[range, ...]:
    """Return consecutive ranges of at most `size` samples and nearly equal length: a short last one costs a pass."""
    parts = -(-samples // size)
    bounds = [samples * part // parts for part in range(parts + 1)]
    return tuple(itertools.starmap(range, itertools.pairwise(bounds)))


def fitting(memory: int, each: int) -> int:
    """Return how many samples of `each` bytes fit into memory, between one and `LARGEST`."""
    return max(1, min(LARGEST, memory // max(1, each)))
