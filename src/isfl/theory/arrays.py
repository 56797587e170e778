"""Checks and shapes shared by the theory: clear errors that name the offending index."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ArrayLike = npt.ArrayLike

SUM_TOLERANCE = 1e-6


def matrix(name: str, values: ArrayLike) -> Array:
    """Return `values` as a float64 array of shape (K, C); a vector becomes one row."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 1:
        array = array[None, :]
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have shape (C,) or (K, C), found {np.shape(values)}")
    return array


def first(bad: npt.NDArray[np.bool_], dimensions: int = 2) -> str:
    """Return the index of the first True as the caller would write it; `dimensions` is 1 for a vector."""
    index = [int(i) for i in np.argwhere(bad)[0]][-dimensions:]
    return "[" + ", ".join(map(str, index)) + "]"


def shares(name: str, values: ArrayLike) -> Array:
    """Return rows of non-negative numbers that sum to one, or raise a ValueError that names the wrong index."""
    array = matrix(name, values)
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        index = first(bad, np.ndim(values))
        raise ValueError(f"{name}{index} is {array[bad][0]}: shares must be finite and not negative")
    sums = array.sum(axis=1)
    wrong = np.abs(sums - 1.0) > SUM_TOLERANCE
    if wrong.any():
        row = int(np.argmax(wrong))
        place = name if np.ndim(values) == 1 else f"{name}[{row}]"
        raise ValueError(f"{place} sums to {sums[row]:.6g}: shares must sum to 1 (divide counts by their sum)")
    return array / sums[:, None]


def squared(name: str, lipschitz: ArrayLike, *, relative: bool = False) -> Array:
    """Return `L^2`, with unknown values (NaN) replaced by the mean of the known ones in their row.

    A class whose `L` is the average has `alpha = 0`: it is neither favoured nor avoided. A row without any known
    value counts as flat. `relative` divides each row by its largest value first: the scale of `L` does not change
    what the solvers find, and squares of extreme values would overflow.
    """
    values = matrix(name, lipschitz)
    bad = np.isinf(values) | (values < 0)
    if bad.any():
        index = first(bad, np.ndim(lipschitz))
        raise ValueError(
            f"{name}{index} is {values[bad][0]}: a Lipschitz value must be finite and not negative "
            "(NaN where it is unknown)"
        )
    unknown = np.isnan(values)
    known_values = np.where(unknown, 0.0, values)
    if relative:
        largest = known_values.max(axis=1, keepdims=True)
        known_values = known_values / np.where(largest > 0, largest, 1.0)
    square = known_values**2
    known = (~unknown).sum(axis=1)
    mean = np.where(known > 0, square.sum(axis=1) / np.maximum(known, 1), 1.0)
    return np.where(unknown, mean[:, None], square)


def same_width(**arrays: Array) -> int:
    """Return the common number of classes, or raise a ValueError that names the array that differs."""
    (first_name, head), *rest = arrays.items()
    for name, array in rest:
        if array.shape[1] != head.shape[1]:
            raise ValueError(
                f"{name} has {array.shape[1]} classes where {first_name} has {head.shape[1]}: they must agree"
            )
    return head.shape[1]


def rows(name: str, array: Array, count: int) -> Array:
    """Return `array` with `count` rows: a single row is shared by all clients."""
    if array.shape[0] not in (1, count):
        raise ValueError(f"{name} has {array.shape[0]} rows where {count} clients were given (or give one row)")
    return np.broadcast_to(array, (count, array.shape[1]))
