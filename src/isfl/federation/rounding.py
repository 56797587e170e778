"""Rounding of products of floats: how many clients a share of them is."""

from __future__ import annotations

import math


def rounded_up(value: float) -> int:
    """Return the next whole number; errors of floats do not count: 50 * 1.1 is a little more than 55."""
    return math.ceil(value - 1e-9)
