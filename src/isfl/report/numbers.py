"""Numbers of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")


def number(value: Any) -> float | None:
    """Return a finite number with as many digits as a reader can use; None for anything else."""
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")


def count(value: float) -> float | None:
    """Return a sum of whole numbers with all its digits, a mean of such sums like `number`."""
    return int(value) if value.is_integer() else number(value)


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` items, at least two, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.unique(np.linspace(0, len(items) - 1, max(most, 2)).round().astype(int))]
