"""Solver `exact` (ours): the global minimum of `rho` over the feasible set, for many clients at once.

For a fixed `b = sum_i q_i c_i` (with cost `c = L^2`) the best `q` is the Euclidean projection of the
target onto `{q >= floor, sum q = 1, c.q = b}`, which has the form

    q_i = max(floor_i, p_i - nu - mu c_i).

As `mu` grows from 0, `q` runs along a path of straight pieces from the projection of the target to the
cheapest feasible point. (Negative `mu` would raise both factors of `rho`.) Three facts avoid a walk along it:

1. **Every minimum is a fixed point.** The least `a = 1 + ||p - q||^2` for a given `b` is a convex function
   of `b` with slope `-2 mu`. So `rho = a b` is stationary where `mu = a / (2 b)`. Along the path `a` never
   falls and `b` never rises, hence `a / (2 b)` never falls, and all fixed points between two places `l`, `r`
   of the path satisfy `a_l / (2 b_l) <= mu <= a_r / (2 b_r)`.
2. **Tangents bound from below.** A convex function lies above its tangents at `l` and `r`. Under either line
   `rho` is a concave function of `b`, so between `l` and `r` it is at least its value at one of them, or the
   value where the lines cross.
3. **A piece is solved at once.** With `F` the `n` classes above their floor, `d = p - floor` and `room` the
   mass above all floors, let `A = (sum_F d - room) / n`, `B` the mean of `c` over `F`, `V = sum_F (c - B)^2`.
   Then `nu = A - mu B`, `a = alpha + mu^2 V` and `b = beta - mu V`, so the minimum of `rho` on the piece is
   the smaller root of `3 V mu^2 - 2 beta mu + alpha`, and class `i` meets its floor at `(d_i - A) / (c_i - B)`.

The algorithm: shrink the interval of `mu` by (1), drop it if (2) is no better than the best point known, else solve
the piece in its middle by (3) and continue with the rest on either side. Every step removes a piece, and there
are at most 2C + 1: a class's level `d_i - nu - mu c_i` is concave in `mu`, hence leaves and meets its floor
at most once. On random problems it solves fewer than four pieces per client with ten classes, fewer than
six with a hundred.

Costs are measured relative to the cheapest class: this shifts only `nu` and keeps `mu c` below 3 for classes above
their floor, so no digits cancel, however large `mu` becomes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isfl.theory.arrays import Array
from isfl.theory.feasible import Mask, Solver, restore, water_level

Rows = np.ndarray[tuple[int], np.dtype[np.intp]]

FAR = 1e300
"""A `mu` at which only the cheapest classes are above their floor."""

ROUNDING = 1e-15
"""A gain smaller than this share of `rho` is rounding noise."""

DOUBT = 1e-14
"""The rounding error of `b` as a share of the largest cost above its floor, which may be far larger than `b`."""

BLOCK = 512
"""The number of clients solved together; their arrays fit into a core's cache."""


@dataclass(frozen=True)
class _Path:
    """The paths of many clients, one row each."""

    slack: Array
    """(K, C) `d = p - floor`, -inf outside the support."""
    cost: Array
    """(K, C) above the cheapest class of the support, as a share of the largest cost."""
    room: Array
    """(K,) the mass above all floors."""
    furthest: Array
    """(K,) `1 + ||p - floor||^2`: the value of `a` with every class at its floor."""
    least_cost: Array
    """(K,) `b` at the end of the path."""

    def q_above_floor(self, mu: Array, nu: Array) -> Array:
        return np.maximum(self.slack - nu[:, None] - mu[:, None] * self.cost, 0.0)


@dataclass(frozen=True)
class _Piece:
    """A stretch of the path on which the same classes are above their floor; arrays of shape (N,)."""

    start: Array
    end: Array
    alpha: Array
    beta: Array
    variation: Array
    nu: Array
    """`nu` at `mu = 0`, if the piece is extended to there."""
    mean_cost: Array

    def at(self, mu: Array) -> Array:
        """Return `mu`, `a` and `b`, (3, N)."""
        return np.stack([mu, self.alpha + mu * (mu * self.variation), self.beta - mu * self.variation])

    def lowest(self) -> Array:
        """Return the `mu` of the smallest `rho`: it falls up to the smaller root, or everywhere without a root."""
        square = self.beta**2 - 3.0 * self.variation * self.alpha
        root = self.alpha / np.maximum(self.beta + np.sqrt(np.maximum(square, 0.0)), 1.0 / FAR)
        return np.clip(np.where(square >= 0, root, self.end), self.start, self.end)


def exact_minimum(p: Array, cost: Array, floors: Array, support: Mask) -> Array:
    """Return the `q` that minimises `(1 + ||p - q||^2) (c . q)`; arguments as in `water_filling`, any cost `c >= 0`."""
    blocks = [slice(i, i + BLOCK) for i in range(0, len(p), BLOCK)]
    return np.concatenate([_minimum_of_block(p[b], cost[b], floors[b], support[b]) for b in blocks])


def _minimum_of_block(p: Array, cost: Array, floors: Array, support: Mask) -> Array:
    path = _path(p, cost, floors, support)
    row = np.arange(len(p))
    first, last = (_piece(path, row, np.full(len(p), mu), 0.0, FAR) for mu in (0.0, FAR))
    best = np.stack([last.alpha * last.beta, last.lowest(), last.nu - last.lowest() * last.mean_cost])
    _record(best, row, first)
    left, right = first.at(first.end), last.at(last.start)
    for _ in range(2 * p.shape[1] + 1):
        low, high = _between(left, right)
        open_ = (low < high) & (_lower_bound(left, right) < best[0, row] * (1.0 - ROUNDING))
        if not open_.any():
            break
        row, left, right, low, high = row[open_], left[:, open_], right[:, open_], low[open_], high[open_]
        piece = _piece(path, row, np.clip(np.sqrt(low) * np.sqrt(high), low, high), low, high)
        _record(best, row, piece)
        row = np.concatenate([row, row])
        left, right = np.hstack([left, piece.at(piece.end)]), np.hstack([piece.at(piece.start), right])
    _, mu, nu = best
    cheapest = support & (path.cost == 0)
    return restore(floors + path.q_above_floor(mu, nu), floors, support, fallbacks=(cheapest.astype(np.float64),))


def _path(p: Array, cost: Array, floors: Array, support: Mask) -> _Path:
    largest = np.where(support, cost, 0.0).max(axis=1, keepdims=True)
    cost = np.where(support, cost, 0.0) / np.where(largest > 0, largest, 1.0)
    cheapest = np.where(support, cost, np.inf).min(axis=1)
    room = np.maximum(1.0 - floors.sum(axis=1), 0.0)
    return _Path(
        slack=np.where(support, p - floors, -np.inf),
        cost=np.where(support, cost - cheapest[:, None], 0.0),
        room=room,
        furthest=1.0 + ((p - floors) ** 2).sum(axis=1),
        least_cost=(floors * cost).sum(axis=1) + room * cheapest,
    )


def _piece(path: _Path, row: Rows, mu: Array, low: Array | float, high: Array | float) -> _Piece:
    """Return the piece at `mu` of the clients `row`, cut to `[low, high]`."""
    slack, cost, room = path.slack[row], path.cost[row], path.room[row]
    level = slack - mu[:, None] * cost
    free = level > water_level(level, room)[:, None]
    count = np.maximum(free.sum(axis=1), 1)
    free_slack = np.where(free, slack, 0.0)
    nu = (free_slack.sum(axis=1) - room) / count
    mean_cost = np.where(free, cost, 0.0).sum(axis=1) / count
    relative_cost = cost - mean_cost[:, None]
    deviation = np.where(free, relative_cost, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        meets_floor = (slack - nu[:, None]) / relative_cost
    moves = relative_cost != 0
    ahead = free == (relative_cost > 0)  # a free class sinks to its floor, a class at its floor rises from it
    return _Piece(
        start=np.clip(np.where(moves & ~ahead, meets_floor, -np.inf).max(axis=1), low, mu),
        end=np.clip(np.where(moves & ahead, meets_floor, np.inf).min(axis=1), mu, high),
        alpha=path.furthest[row] - (free_slack**2).sum(axis=1) + count * nu**2,
        beta=path.least_cost[row] + mean_cost * room + (deviation * free_slack).sum(axis=1),
        variation=(deviation**2).sum(axis=1),
        nu=nu,
        mean_cost=mean_cost,
    )


def _record(best: Array, row: Rows, piece: _Piece) -> None:
    """Update each client's smallest `rho` and its `mu` and `nu`; a client may have several pieces.

    Far before a fixed point `b` may be nothing but rounding error (see `DOUBT`). Such points cannot be the minimum and
    are ignored.
    """
    mu, a, b = piece.at(piece.lowest())
    value = np.where(4.0 * mu * b > a, a * b, np.inf)
    np.minimum.at(best[0], row, value)
    wins = value == best[0, row]
    best[1:, row[wins]] = mu[wins], (piece.nu - mu * piece.mean_cost)[wins]


def _between(left: Array, right: Array) -> tuple[Array, Array]:
    """Return the interval that holds all fixed points between two places of the path (fact 1)."""
    (mu_l, a_l, b_l), (mu_r, a_r, b_r) = left, right
    most = b_l + DOUBT * 3.0 / np.maximum(mu_l, 3.0)  # no class above its floor costs more than 1, or 3 / mu
    with np.errstate(divide="ignore", over="ignore"):
        return np.maximum(mu_l, a_l / (2.0 * most)), np.minimum(mu_r, a_r / (2.0 * b_r))


def _lower_bound(left: Array, right: Array) -> Array:
    """Return a value that bounds `rho` between two places of the path from below, together with theirs (fact 2)."""
    (mu_l, a_l, b_l), (mu_r, a_r, b_r) = left, right
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = 0.5 * ((a_r + 2.0 * mu_r * b_r) - (a_l + 2.0 * mu_l * b_l)) / (mu_r - mu_l)
    b = np.fmax(crossing, b_r)
    return (a_l + 2.0 * mu_l * (b_l - b)) * b


SOLVER = Solver("exact", "the exact minimum of rho, a policy only with a target_floor", exact_minimum)
