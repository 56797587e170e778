"""Checks of arrays that come from files or from the user's code."""

from __future__ import annotations

import numpy as np

from isfl.errors import UserError


def checked_labels(values: np.ndarray, where: str) -> np.ndarray:
    """Return labels as int64, or refuse them; `where` is what the error calls them."""
    if values.ndim != 1 or len(values) == 0 or values.dtype.kind not in "iu":
        raise UserError(f"{where} must be a non-empty vector of whole numbers, found {values.dtype} {values.shape}")
    return values.astype(np.int64)


def checked_inputs(values: np.ndarray, where: str) -> np.ndarray:
    """Return inputs as they are stored, or refuse them.

    Images become (N, channels, height, width) bytes, floats single precision (and must be finite), tokens int64.
    """
    if values.ndim < 2 or values.dtype.kind not in "uif":
        raise UserError(
            f"{where} must be an array of numbers with one row per sample, found {values.dtype} {values.shape}"
        )
    if values.dtype == np.uint8:
        if values.ndim == 3:
            return values[:, None]
        if values.ndim == 4 and values.shape[1] not in (1, 3) and values.shape[3] in (1, 3):
            return np.ascontiguousarray(values.transpose(0, 3, 1, 2))
        return values
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        if not np.isfinite(single).all():
            raise UserError(f"{where} are not all finite (in single precision); clean the data first")
        return single
    return values.astype(np.int64)
