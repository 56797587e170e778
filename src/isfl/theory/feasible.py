"""The feasible set of the sampling problem: floors below, a sum of one, nothing outside the support."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isfl.theory.arrays import Array

Mask = npt.NDArray[np.bool_]


def restore(q: Array, floors: Array, support: Mask, fallbacks: tuple[Array, ...]) -> Array:
    """A feasible point close to `q`: floors plus what `q` has above them, scaled to the mass that is left.

    Identity (up to rounding) where `q` is feasible already. Rows in which `q` has nothing above the
    floors take the shape of the first fallback that has something there.
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
    """The `nu` of each row with `sum_i max(slack_i - nu, 0) = room`, by sorting; -inf marks classes left out."""
    ordered = np.sort(slack, axis=1)[:, ::-1]
    levels = (np.cumsum(ordered, axis=1) - room[:, None]) / np.arange(1, slack.shape[1] + 1)
    kept = np.maximum((ordered > levels).sum(axis=1), 1)
    return np.take_along_axis(levels, kept[:, None] - 1, axis=1)[:, 0]
