"""Which clients and classes cause the skew of a federation: the squared distance of label mixes, split up (ours)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isfl.theory.arrays import Array, ArrayLike
from isfl.theory.skew import class_counts


@dataclass(frozen=True)
class Drivers:
    """`D = sum_k pi_k sum_i (p_i - p^k_i)^2` with `pi_k = n_k / N`, and the share of each client and class in it.

    With flat `L` and the global target, `rho` of FedAvg is `1 + D` on average (see `rho.py`).
    """

    total: float
    """`D`: 0 if all mixes are equal, always below 2."""
    chance: float
    """The expected `D` if the same samples were dealt at random to clients of the same sizes."""
    clients: Array
    """(K,) each client's share of `D`; zeros where `D` is 0."""
    classes: Array
    """(C,) each class's share of `D`; zeros where `D` is 0."""


def skew_drivers(counts: ArrayLike) -> Drivers:
    """Return the skew of class counts, shape (K, C), and its causes.

    Dealing without replacement gives `E ||p - p^k||^2 = (1 - ||p||^2) (N - n_k) / (n_k (N - 1))`, and weighted by
    `n_k / N` that is `(1 - ||p||^2) (K - 1) / (N - 1)`: small clients look skewed by chance.
    """
    n = class_counts(counts)
    sizes, whole = n.sum(axis=1), n.sum()
    p, p_k = n.sum(axis=0) / whole, n / sizes[:, None]
    parts = (sizes / whole)[:, None] * (p - p_k) ** 2
    total = float(parts.sum())
    chance = (1.0 - float((p**2).sum())) * (len(n) - 1) / max(whole - 1, 1)
    shares = parts / total if total > 0 else np.zeros_like(parts)
    return Drivers(total, max(chance, 0.0), shares.sum(axis=1), shares.sum(axis=0))


def leading(shares: Array, part: float = 0.5) -> np.ndarray:
    """Return the fewest indices whose shares add up to `part` of the sum, largest first; none if all shares are 0."""
    order = np.argsort(-shares, kind="stable")
    sums = np.cumsum(shares[order])
    if sums[-1] <= 0:
        return order[:0]
    return order[: int(np.searchsorted(sums, part * sums[-1] * (1.0 - 1e-12))) + 1]
