"""Checks and shapes shared by the theory: clear errors that name the offending index."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ArrayLike = npt.ArrayLike

SUM_TOLERANCE = 1e-6


def matrix(name: str, values: ArrayLike) -> Array:
    """`values` as a float64 array of shape (K, C); a vector becomes one row."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 1:
        array = array[None, :]
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have shape (C,) or (K, C), found {np.shape(values)}")
    return array


def first(bad: npt.NDArray[np.bool_]) -> str:
    """The index of the first True, printed the way numpy would take it."""
    index: tuple[Any, ...] = tuple(int(i) for i in np.argwhere(bad)[0])
    return "[" + ", ".join(map(str, index)) + "]"


def shares(name: str, values: ArrayLike) -> Array:
    """Rows of non-negative numbers that sum to one."""
    array = matrix(name, values)
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        raise ValueError(f"{name}{first(bad)} is {array[bad][0]}: shares must be finite and not negative")
    sums = array.sum(axis=1)
    wrong = np.abs(sums - 1.0) > SUM_TOLERANCE
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{name}[{row}] sums to {sums[row]:.6g}: shares must sum to 1 (divide counts by their sum)")
    return array / sums[:, None]


def squared(name: str, lipschitz: ArrayLike) -> Array:
    """`L^2`, with unknown values (NaN) replaced by the mean of the known ones of their row.

    A class whose `L` is the average has `alpha = 0`: it is neither favoured nor avoided. A row
    without any known value counts as flat.
    """
    values = matrix(name, lipschitz)
    bad = np.isinf(values) | (values < 0)
    if bad.any():
        raise ValueError(
            f"{name}{first(bad)} is {values[bad][0]}: a Lipschitz value must be finite and not negative "
            "(NaN where it is unknown)"
        )
    unknown = np.isnan(values)
    square = np.where(unknown, 0.0, values) ** 2
    known = (~unknown).sum(axis=1)
    mean = np.where(known > 0, square.sum(axis=1) / np.maximum(known, 1), 1.0)
    return np.where(unknown, mean[:, None], square)


def same_width(**arrays: Array) -> int:
    """The common number of classes, or an error that names the odd one out."""
    (first_name, head), *rest = arrays.items()
    for name, array in rest:
        if array.shape[1] != head.shape[1]:
            raise ValueError(
                f"{name} has {array.shape[1]} classes where {first_name} has {head.shape[1]}: they must agree"
            )
    return head.shape[1]


def rows(name: str, array: Array, count: int) -> Array:
    """`array` with `count` rows: a single row is shared by all clients."""
    if array.shape[0] not in (1, count):
        raise ValueError(f"{name} has {array.shape[0]} rows where {count} clients were given (or give one row)")
    return np.broadcast_to(array, (count, array.shape[1]))
