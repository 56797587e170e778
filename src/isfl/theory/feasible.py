"""The feasible set of problem P of the ISFL paper, and what a solver of that problem is.

Probabilities are feasible if they keep their floors, sum to one and are zero outside the support.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isfl.theory.arrays import Array

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Solver:
    """One way to find sampling probabilities: a file of this package defines it as `SOLVER`."""

    name: str
    """What users write to choose it."""
    meaning: str
    """What it finds, in one phrase for the documentation."""
    solve: Callable[[Array, Array, Array, Mask], Array]
    """From (target, cost, floors, support), all (K, C), to feasible probabilities (K, C)."""


def restore(q: Array, floors: Array, support: Mask, fallbacks: tuple[Array, ...]) -> Array:
    """Return a feasible point close to `q`: the floors plus the excess of `q` above them, scaled to the mass left.

    A feasible `q` stays the same (up to rounding). Rows in which `q` has nothing above the floors take the
    shape of the first fallback that has something there.
    """
    room = np.maximum(1.0 - floors.sum(axis=1), 0.0)
    result = floors.copy()
    open_rows = room > 0
    for candidate in (q, *fallbacks):
        excess = np.where(support, np.maximum(candidate - floors, 0.0), 0.0)
        total = excess.sum(axis=1)
        use = open_rows & (total > 0)
        scale = np.divide(room, total, out=np.zeros_like(room), where=use)
        result[use] += excess[use] * scale[use, None]
        open_rows = open_rows & ~use
    return result


def water_level(slack: Array, room: Array) -> Array:
    """Return the `nu` of each row with `sum_i max(slack_i - nu, 0) = room`, by sorting; -inf excludes a class."""
    ordered = np.sort(slack, axis=1)[:, ::-1]
    levels = (np.cumsum(ordered, axis=1) - room[:, None]) / np.arange(1, slack.shape[1] + 1)
    kept = np.maximum((ordered > levels).sum(axis=1), 1)
    return np.take_along_axis(levels, kept[:, None] - 1, axis=1)[:, 0]
