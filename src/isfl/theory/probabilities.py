"""Sampling probabilities `q^k` from target shares, local shares and Lipschitz values: problem P of the ISFL paper.

Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for Non-i.i.d. Data with Local Importance
Sampling", IEEE Internet of Things Journal, 2024.

To add a solver, write a file of this package that defines `SOLVER` and add its name to `FILES`.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from isfl.theory.arrays import Array, ArrayLike, rows, same_width, shares, squared
from isfl.theory.feasible import Mask, Solver, restore

FILES = (
    "water_filling",
    "exact",
)


def _listed() -> dict[str, Solver]:
    found: list[Solver] = [import_module(f"isfl.theory.{file}").SOLVER for file in FILES]
    return {solver.name: solver for solver in found}


SOLVERS = _listed()
"""The solvers of problem P by name."""


def sampling_probabilities(
    target: ArrayLike,
    local: ArrayLike,
    lipschitz: ArrayLike,
    *,
    floor: float = 0.05,
    target_floor: float = 0.0,
    solver: str = "paper",
    strength: float = 1.0,
) -> Array:
    """Return the probabilities with which each client should draw each class in its next local epochs.

    Minimises (solver `exact`) or lowers (solver `paper`, the default) `rho(q)` subject to `sum_i q_i = 1`,
    `q_i >= max(floor * p^k_i, target_floor * p_i)` and `q_i = 0` for classes the client does not hold. This is problem
    P of the ISFL paper (Zhu et al., IEEE Internet of Things Journal, 2024); solver `paper` implements its Theorems 2
    and 3 (Algorithm 1), and `exact` is ours.

    The exact minimum is the theoretical optimum of the paper's figure on `rho`, not a good policy by
    itself: with small floors it puts nearly all draws on the class with the smallest `L`. Use it for
    training only with a `target_floor`.

    Parameters
    ----------
    target
        (C,) or (K, C). The shares `p` to aim at, one vector for all clients or one per client.
    local
        (C,) or (K, C). The shares `p^k` of the classes on the client(s); zero where a class is missing.
    lipschitz
        Like `local`. The values `L`; NaN where unknown (treated as average).
    floor
        The paper's lowest weight `varpi`, in [0, 1].
    target_floor
        A floor relative to the target, in [0, 1]; `floor + target_floor <= 1`.
    solver
        `"paper"` or `"exact"`. Note that a class with `p_j = 0` and an above-average `L` stops `paper` at
        the target itself: it is at its floor before the first step.
    strength
        In [-1, 1]. How far to go from the target (on the classes held, above the floors) to the solver's
        probabilities: 1 goes all the way, 0 stays at the target, a negative number goes the opposite way as far
        as the floors allow.

    Returns
    -------
    Array
        Probabilities in the shape of `local`. They are feasible for every valid input.

    Raises
    ------
    ValueError
        If an argument is wrong; the message names it and the index.

    Examples
    --------
    The target is balanced. Class 2 has the largest `L` and is drawn less, down to its floor of 0.5 * 0.2:

    >>> from isfl import sampling_probabilities
    >>> sampling_probabilities([1 / 3, 1 / 3, 1 / 3], [0.4, 0.4, 0.2], [1.0, 1.0, 2.0], floor=0.5).round(3)
    array([0.45, 0.45, 0.1 ])
    """
    if solver not in SOLVERS:
        raise ValueError(f"solver is {solver!r}: choose one of {', '.join(map(repr, SOLVERS))}")
    if not -1.0 <= strength <= 1.0:
        raise ValueError(f"strength is {strength}: it must lie in [-1, 1]")
    p, p_k, cost = shares("target", target), shares("local", local), squared("lipschitz", lipschitz, relative=True)
    same_width(local=p_k, target=p, lipschitz=cost)
    clients = len(p_k)
    p, cost = rows("target", p, clients), rows("lipschitz", cost, clients)
    support = p_k > 0
    floors = lowest_probabilities(p, p_k, floor, target_floor)
    q = SOLVERS[solver].solve(p, cost, floors, support)
    if strength != 1.0:
        q = _partway(p, q, floors, support, strength)
    return q[0] if np.ndim(local) == 1 else q


def _partway(p: Array, q: Array, floors: Array, support: Mask, strength: float) -> Array:
    """Return `t + strength (q - t)`, `t` the target on the support; what falls below a floor is lifted to it."""
    wanted, held = np.where(support, p, 0.0), support.astype(np.float64)
    total = wanted.sum(axis=1, keepdims=True)
    target = np.where(total > 0, wanted / np.where(total > 0, total, 1.0), held / held.sum(axis=1, keepdims=True))
    target = restore(target, floors, support, fallbacks=(held,))
    return restore(target + strength * (q - target), floors, support, fallbacks=(target, held))


def lowest_probabilities(p: Array, p_k: Array, floor: float, target_floor: float) -> Array:
    """Return `max(floor * p^k_i, target_floor * p_i)` on the classes the client holds, 0 elsewhere."""
    for name, value in (("floor", floor), ("target_floor", target_floor)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is {value}: it must lie in [0, 1]")
    if floor + target_floor > 1.0:
        raise ValueError(
            f"floor + target_floor is {floor + target_floor:g}: more than 1 cannot be met by probabilities"
        )
    return np.where(p_k > 0, np.maximum(floor * p_k, target_floor * p), 0.0)
