"""`rho`: the only factor of the convergence bound that the sampling probabilities move (Theorem 1).

Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for Non-i.i.d. Data with Local Importance
Sampling", IEEE Internet of Things Journal, 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from isfl.theory.arrays import Array, ArrayLike, matrix, rows, same_width, squared

Rows = Sequence[Sequence[float]] | Sequence[Array]


@overload
def rho(probabilities: Sequence[float], target: ArrayLike, lipschitz: ArrayLike) -> float: ...
@overload
def rho(probabilities: Rows, target: ArrayLike, lipschitz: ArrayLike) -> Array: ...
@overload  # the type of a numpy array does not say reliably whether it is a vector or a matrix
def rho(probabilities: npt.NDArray[Any], target: ArrayLike, lipschitz: ArrayLike) -> Any: ...
def rho(probabilities: ArrayLike, target: ArrayLike, lipschitz: ArrayLike) -> Any:
    """Return `rho(q) = (1 + sum_i (p_i - q_i)^2) * (sum_i q_i L_i^2)`.

    This is the factor in Theorem 1 of the ISFL paper (Zhu et al., IEEE Internet of Things Journal, 2024) that problem P
    minimises.

    Parameters
    ----------
    probabilities
        (C,) or (K, C), the sampling probabilities `q`.
    target
        (C,) or (K, C), the shares `p` the federation aims at.
    lipschitz
        (C,) or (K, C), the values `L`; NaN where unknown (treated as the row's average).

    Returns
    -------
    float or Array
        A float for one vector of probabilities, an array of shape (K,) for a matrix.

    Raises
    ------
    ValueError
        If the shapes do not agree or a Lipschitz value is infinite or negative; the message names argument and index.

    Examples
    --------
    Sampling less of the class with the largest `L` lowers `rho`, although it moves `q` away from the target:

    >>> from isfl import rho
    >>> rho([0.5, 0.5], target=[0.5, 0.5], lipschitz=[1.0, 3.0])
    5.0
    >>> rho([[0.5, 0.5], [0.75, 0.25]], target=[0.5, 0.5], lipschitz=[1.0, 3.0])
    array([5.   , 3.375])
    """
    q, p, cost = matrix("probabilities", probabilities), matrix("target", target), squared("lipschitz", lipschitz)
    same_width(probabilities=q, target=p, lipschitz=cost)
    values = rho_of(q, rows("target", p, len(q)), rows("lipschitz", cost, len(q)))
    return float(values[0]) if np.ndim(probabilities) == 1 else values


def rho_of(q: Array, p: Array, cost: Array) -> Array:
    """Return `rho` of checked (K, C) arrays, for any cost in place of `L^2`."""
    return (1.0 + ((p - q) ** 2).sum(axis=1)) * (q * cost).sum(axis=1)
