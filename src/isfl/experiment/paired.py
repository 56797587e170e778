"""Differences between two schemes, paired by seed, with Student's 95 % interval.

A seed decides the split, the initial model and every draw, so two runs of one seed differ in the scheme alone. The
interval is `mean +- t s / sqrt(n)`: "Student", "The probable error of a mean", Biometrika 6(1), 1908.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isfl.experiment import columns

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Paired:
    """One value minus another, on the seeds that both have; in the unit of the values."""

    by_seed: Mapping[int, float]
    mean: float
    spread: float
    """Sample standard deviation over seeds; 0 with one seed."""
    half_width: float | None
    """Of the 95 % interval; None with one seed, which has no spread."""
    ahead: int
    """The number of seeds on which the difference has the sign of its mean."""

    @property
    def seeds(self) -> int:
        return len(self.by_seed)

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def paired(values: Mapping[int, float], others: Mapping[int, float]) -> Paired | None:
    """Return `values - others` on the seeds for which both are finite; None if there is no such seed."""
    common = [seed for seed in sorted(values.keys() & others.keys()) if math.isfinite(values[seed] - others[seed])]
    if not common:
        return None
    by_seed = {seed: values[seed] - others[seed] for seed in common}
    differences = np.array(list(by_seed.values()))
    mean, spread, count = float(differences.mean()), columns.deviation(differences), len(common)
    half_width = t_quantile(count - 1) * spread / math.sqrt(count) if count > 1 else None
    return Paired(by_seed, mean, spread, half_width, int((np.sign(differences) == np.sign(mean)).sum()))


def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the `t` with `P(|T| <= t) = confidence` for Student's T with whole degrees of freedom, by bisection."""
    low, high = 0.0, 1.0
    while _central(high, degrees) < confidence:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _central(middle, degrees) < confidence else (low, middle)
    return (low + high) / 2


def _central(t: float, degrees: int) -> float:
    """Return `P(|T| <= t)`: a finite sum in the angle `atan(t / sqrt(degrees))` (Abramowitz and Stegun, 26.7.3-4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
