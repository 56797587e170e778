"""`rho`: the only factor of the convergence bound that the sampling probabilities move."""

from __future__ import annotations

import numpy as np

from isfl.theory.arrays import Array, ArrayLike, matrix, rows, same_width, squared


def rho(probabilities: ArrayLike, target: ArrayLike, lipschitz: ArrayLike) -> Array | float:
    """`rho(q) = (1 + sum_i (p_i - q_i)^2) * (sum_i q_i L_i^2)` (Theorem 1).

    Parameters
    ----------
    probabilities
        (C,) or (K, C), the sampling probabilities `q`.
    target
        (C,) or (K, C), the shares `p` the federation aims at.
    lipschitz
        (C,) or (K, C), the values `L`; NaN where unknown (counted as the row's average).

    Returns
    -------
    Array | float
        Of shape (K,), or a float when `probabilities` is a vector.
    """
    q, p, cost = matrix("probabilities", probabilities), matrix("target", target), squared("lipschitz", lipschitz)
    same_width(probabilities=q, target=p, lipschitz=cost)
    values = rho_of(q, rows("target", p, len(q)), rows("lipschitz", cost, len(q)))
    return float(values[0]) if np.ndim(probabilities) == 1 else values


def rho_of(q: Array, p: Array, cost: Array) -> Array:
    """The same for checked (K, C) arrays and any cost in place of `L^2`."""
    return (1.0 + ((p - q) ** 2).sum(axis=1)) * (q * cost).sum(axis=1)
