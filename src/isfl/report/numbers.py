"""Numbers of the page."""

from __future__ import annotations

import math
from typing import Any


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
