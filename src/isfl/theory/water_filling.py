"""Solver `paper`: the water-filling rule of Theorems 2 and 3 (Algorithm 1).

Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for Non-i.i.d. Data with Local Importance
Sampling", IEEE Internet of Things Journal, 2024.

It starts at the target `p` and moves along one fixed direction `alpha`, away from classes with a large
`L`, until the first class reaches its floor. That point is feasible and close to the target; it is not
the minimum of `rho` (see `exact.py`), and as a training policy it is better than the minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isfl.theory.arrays import Array
from isfl.theory.feasible import Mask, Solver, restore

FLAT = 1e-12
"""Below this norm of the deviations all `L` count as equal: their direction would be rounding noise."""


def direction(cost: Array) -> Array:
    """Return `alpha_j = d_j / ||d||` with `d_j = 1 - C L_j^2 / sum_i L_i^2` (Theorem 2); 0 where all `L` are equal."""
    total = cost.sum(axis=1, keepdims=True)
    deviation = np.where(total > 0, 1.0 - cost.shape[1] * cost / np.where(total > 0, total, 1.0), 0.0)
    norm = np.linalg.norm(deviation, axis=1, keepdims=True)
    return np.where(norm > FLAT, deviation / np.where(norm > FLAT, norm, 1.0), 0.0)


def first_floor(p: Array, alpha: Array, floors: Array) -> Array:
    """Return `Gamma* = min { (p_j - varpi p^k_j) / -alpha_j : alpha_j < 0, value >= 0 }`, 0 if empty (Theorem 3)."""
    slack = p - floors
    counted = (alpha < 0) & (slack >= 0)
    steps = np.where(counted, slack / np.where(counted, -alpha, 1.0), np.inf)
    smallest = steps.min(axis=1)
    return np.where(np.isfinite(smallest), smallest, 0.0)


@dataclass(frozen=True)
class Move:
    """The step from the target to the first floor, one row per client."""

    length: Array
    """(K,) `Gamma*`."""
    level: Array
    """(K, C) `p + alpha Gamma*`: where every class would be if the client held them all."""
    stops: npt.NDArray[np.intp]
    """(K,) the class that meets its floor first; -1 where no class falls."""


def move(p: Array, cost: Array, floors: Array) -> Move:
    """Return the parts of Theorem 3; the arguments are those of `water_filling`."""
    alpha = direction(cost)
    length = first_floor(p, alpha, floors)
    level = p + alpha * length[:, None]
    falling = (alpha < 0) & (p >= floors)
    left = np.where(falling, level - floors, np.inf)
    return Move(length, level, np.where(falling.any(axis=1), left.argmin(axis=1), -1))


def water_filling(p: Array, cost: Array, floors: Array, support: Mask) -> Array:
    """Return `q = p + alpha Gamma*`, without the classes the client lacks and renormalised.

    All arguments are (K, C): target, `L^2`, lowest probabilities (summing to at most one, zero outside the
    support) and the classes each client holds. Where the paper's assumption `p_j >= varpi p^k_j` fails,
    the floors still hold.
    """
    q = np.where(support, np.maximum(move(p, cost, floors).level, 0.0), 0.0)
    total = q.sum(axis=1, keepdims=True)
    q = q / np.where(total > 0, total, 1.0)
    return restore(q, floors, support, fallbacks=(p, support.astype(np.float64)))


SOLVER = Solver("paper", "the paper's rule, which stops at the first floor", water_filling)
