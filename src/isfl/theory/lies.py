"""What a client can change with a lie about its class counts, and bounds on it.

Nothing proves the counts and the size that a client announces. A liar among clients with `M` samples that claims `m`
has the weight `lambda = m / (M + m)` in the target and in a mean by size. With `p_others` the shares of the others and
`s` the shares it claims, the target is `p = (1 - lambda) p_others + lambda s`. Hence:

- **target**: two sets of claims of weights `lambda` and `lambda'` differ by
  `p' - p = (lambda - lambda') p_others + lambda' s' - lambda s`, so `||p' - p||_1 <= 2 max(lambda, lambda')`, and the
  largest shift is reached by claiming a single class, because a norm is convex in `s'`.
- **weight**: sizes capped at `c` times their median give a liar among `K` clients at most `c / (c + K/2 - 1)`: at least
  half of the clients are of the median size, or above it.
- **probabilities**: `probability_shift_bound`.

Lipschitz values need no bound: each client's are used for its own probabilities and for nobody else's.
"""

from __future__ import annotations

import numpy as np

from isfl.theory.arrays import Array, ArrayLike, rows, same_width, shares, squared
from isfl.theory.probabilities import lowest_probabilities
from isfl.theory.water_filling import direction, move


def liar_weight(others: float, claimed: float) -> float:
    """Return `m / (M + m)`: the weight of a client that claims `m` samples where the others have `M`."""
    return claimed / (others + claimed)


def capped(sizes: Array, cap: float | None) -> Array:
    """Return (K,) sizes of at most `cap` times their median; all of them as they are for None."""
    return sizes if cap is None else np.minimum(sizes, cap * np.median(sizes))


def capped_weight_bound(clients: int, cap: float) -> float:
    """Return `c / (c + K/2 - 1)`: the most that one of `K` clients weighs if sizes are capped, whatever it claims."""
    return cap / (cap + clients / 2 - 1)


def largest_target_shift(others: Array, honest: Array, claimed: float) -> tuple[Array, float]:
    """Return the best lie of a client, and the shift `||p' - p||_1` of the target that it reaches.

    `others` and `honest` are (C,) class counts: the sum over the other clients, and the liar's true ones. The lie is
    the (C,) counts that sum to `claimed` and move the target furthest.
    """
    truth = (others + honest) / (others.sum() + honest.sum())
    lies = claimed * np.eye(len(others))
    shifts = np.abs((others + lies) / (others.sum() + claimed) - truth).sum(axis=1)
    best = int(shifts.argmax())
    return lies[best], float(shifts[best])


def target_shift_bound(others: float, honest: float, claimed: float) -> float:
    """Return `2 max(lambda, lambda')`, for a client with `honest` samples that claims other counts and `claimed`."""
    return 2.0 * max(liar_weight(others, honest), liar_weight(others, claimed))


def probability_shift_bound(
    target: ArrayLike,
    local: ArrayLike,
    lipschitz: ArrayLike,
    shift: float,
    *,
    floor: float = 0.05,
    target_floor: float = 0.0,
) -> Array:
    """Return (K,) bounds on `||q' - q||_1` of honest clients, for any target with `||p' - p||_1 <= shift`.

    For the solver `paper`. Its direction `alpha` follows from `L` alone, and `q = v / v(S)` with `v = p + alpha Gamma`
    and `v(S)` the part of `v` on the classes held. Each share moves by at most `shift / 2`, so each slack
    `p_j - floor_j` of a falling class changes by a factor between `1 - r` and `1 + r`, with
    `r = (shift / 2) / (smallest slack)`, and so does `Gamma`, which is the smallest of slacks over `-alpha_j`:

        ||v' - v||_1 <= shift + r ||v - p||_1,    ||q' - q||_1 <= 2 ||v' - v||_1 / v(S)

    without the 2 for a client that holds every class. Two probabilities above the same floors are never further apart
    than `2 (1 - sum_j floor_j)`, which is the bound wherever a share could fall below its floor: there the rule jumps,
    and no multiple of `shift` bounds it.
    """
    p, p_k, cost = shares("target", target), shares("local", local), squared("lipschitz", lipschitz, relative=True)
    same_width(local=p_k, target=p, lipschitz=cost)
    p, cost, held = rows("target", p, len(p_k)), rows("lipschitz", cost, len(p_k)), p_k > 0
    floors = lowest_probabilities(p, p_k, floor, target_floor)
    # A floor relative to the target moves with it: the least it can be is what two targets have in common.
    common = lowest_probabilities(np.maximum(p - shift / 2, 0.0), p_k, floor, target_floor)
    widest = 2.0 * (1.0 - common.sum(axis=1))
    level, slack = move(p, cost, floors).level, p - floors
    falling = direction(cost) < 0
    smallest = np.where(falling, slack, np.inf).min(axis=1)
    safe = (np.where(falling | held, slack, np.inf) > shift / 2).all(axis=1)
    rate = np.where(safe, shift / 2 / np.where(safe, smallest, 1.0), 0.0)
    moved = shift + rate * np.abs(level - p).sum(axis=1)
    kept = np.where(held, level, 0.0).sum(axis=1)
    normalised = np.where(held.all(axis=1), moved, 2.0 * moved / np.maximum(kept, 1e-300))
    return np.where(safe, np.minimum(normalised, widest), widest)
