"""Solver `exact`: the global minimum of `rho` over the feasible set, for many clients at once.

For a fixed `b = sum_i q_i c_i` (with cost `c = L^2`) the best `q` is the Euclidean projection of the
target onto `{q >= floor, sum q = 1, c.q = b}`, which has the form

    q_i = max(floor_i, p_i - nu - mu c_i).

Let `mu` grow from 0 and call `p_i - floor_i - nu - mu c_i` the level of class `i`; classes with a
positive level are free, the others rest on their floor. While the set of free classes stays the same,
every level moves with constant speed `mean(c over free) - c_i`. That mean only falls, so each level is
concave in `mu`: a class is released from its floor at most once and clamped at most once, which makes at
most 2C pieces. On each piece `q` moves on a straight line and `rho` is a cubic in the step, so its
minimum is at an end or at a root of a quadratic. The walk visits all pieces and keeps the best point.

Negative `mu` would raise both factors of `rho`, hence is never better.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from isfl.theory.arrays import Array
from isfl.theory.feasible import Mask, project, restore
from isfl.theory.rho import rho_of

STILL = 1e-15
"""Speeds below this share of the largest cost among the free classes are rounding noise."""

BLOCK = 512
"""Clients walked together: few enough for their arrays to stay in a core's cache."""


@dataclass
class _Walk:
    """The clients still walking, one row each."""

    row: np.ndarray
    p: Array
    cost: Array
    floors: Array
    support: Mask
    level: Array
    free: Mask
    waiting: Mask
    least_cost: Array

    def keep(self, mask: Mask) -> None:
        if mask.all():
            return
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[mask])

    @property
    def q(self) -> Array:
        return self.floors + np.where(self.free, self.level, 0.0)


def exact_minimum(p: Array, cost: Array, floors: Array, support: Mask) -> Array:
    """The `q` that minimises `(1 + ||p - q||^2) (c . q)`; arguments as in `water_filling`, any cost `c >= 0`."""
    blocks = [slice(i, i + BLOCK) for i in range(0, len(p), BLOCK)]
    return np.concatenate([_minimum_of_block(p[b], cost[b], floors[b], support[b]) for b in blocks])


def _minimum_of_block(p: Array, cost: Array, floors: Array, support: Mask) -> Array:
    largest = np.where(support, cost, 0.0).max(axis=1, keepdims=True)
    cost = np.where(support, cost, 0.0) / np.where(largest > 0, largest, 1.0)
    start = project(p, floors, support)
    best_q, best = start.copy(), rho_of(start, p, cost)
    walk = _start(p, cost, floors, support, start)
    for _ in range(2 * p.shape[1] + 1):
        walk.keep(_may_improve(walk, best[walk.row]))
        if len(walk.row) == 0:
            break
        _advance(walk, best_q, best)
    return restore(best_q, floors, support, fallbacks=(start, support.astype(np.float64)))


def _start(p: Array, cost: Array, floors: Array, support: Mask, start: Array) -> _Walk:
    excess = start - floors
    free = support & (excess > 0)
    # nu at mu = 0, read off any free class; the level of a class at rest is p - floor - nu <= 0.
    reference = np.argmax(excess, axis=1)[:, None]
    nu = np.take_along_axis(p - floors - excess, reference, axis=1)
    level = np.where(free, excess, np.minimum(p - floors - nu, 0.0))
    room = np.maximum(1.0 - floors.sum(axis=1), 0.0)
    cheapest = np.where(support, cost, np.inf).min(axis=1)
    walk = _Walk(
        row=np.arange(len(p)),
        p=p,
        cost=cost,
        floors=floors,
        support=support,
        level=level,
        free=free,
        waiting=support & ~free,
        least_cost=(floors * cost).sum(axis=1) + room * cheapest,
    )
    walk.keep(np.asarray(free.any(axis=1)))
    return walk


def _may_improve(walk: _Walk, best: Array) -> Mask:
    """Ahead, the distance only grows and the cost cannot fall below its least: a bound that ends most walks early."""
    distance = ((walk.p - walk.q) ** 2).sum(axis=1)
    return (1.0 + distance) * walk.least_cost < best


def _advance(walk: _Walk, best_q: Array, best: Array) -> None:
    """One piece: take its best point if it beats the best so far, then move to its end and flip who is free."""
    mean = (walk.cost * walk.free).sum(axis=1) / walk.free.sum(axis=1)
    speed = np.where(walk.support, mean[:, None] - walk.cost, 0.0)
    speed[np.abs(speed) < STILL * np.where(walk.free, walk.cost, 0.0).max(axis=1, keepdims=True)] = 0.0
    changing = (walk.free & (speed < 0)) | (walk.waiting & (speed > 0))
    times = np.where(changing, np.maximum(-walk.level / np.where(changing, speed, 1.0), 0.0), np.inf)
    going = np.asarray(np.isfinite(times).any(axis=1))  # else: the end of the path
    step = np.where(going, times.min(axis=1), 0.0)

    q, velocity = walk.q, np.where(walk.free, speed, 0.0)
    time = _best_time(q, velocity, walk.p, walk.cost, step)
    candidate = q + velocity * time[:, None]
    value = rho_of(candidate, walk.p, walk.cost)
    better = value < best[walk.row]
    best[walk.row[better]] = value[better]
    best_q[walk.row[better]] = candidate[better]

    walk.level = walk.level + speed * step[:, None]
    flipped = changing & (times <= step[:, None])
    walk.free = walk.free ^ flipped
    walk.waiting = walk.waiting & ~flipped
    walk.level[flipped] = 0.0
    walk.keep(going)


def _best_time(q: Array, velocity: Array, p: Array, cost: Array, step: Array) -> Array:
    """The time in [0, step] at which `(a + 2 b t + s t^2)(e + g t)` is least: an end or a root of its derivative."""
    a = 1.0 + ((q - p) ** 2).sum(axis=1)
    b = ((q - p) * velocity).sum(axis=1)
    s = (velocity**2).sum(axis=1)
    e = (cost * q).sum(axis=1)
    g = (cost * velocity).sum(axis=1)
    quadratic, linear, constant = 3 * s * g, 2 * s * e + 4 * b * g, 2 * b * e + a * g
    root = np.sqrt(np.maximum(linear**2 - 4 * quadratic * constant, 0.0))
    # The form of the quadratic formula that does not cancel. With g < 0 the other root, h / quadratic, is the
    # cubic's maximum, or negative.
    h = -0.5 * (linear + np.where(linear >= 0, root, -root))
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.stack([np.zeros_like(step), step, constant / h])
    times = np.clip(np.where(np.isfinite(times), times, 0.0), 0.0, step)
    values = (a + 2 * b * times + s * times**2) * (e + g * times)
    return np.take_along_axis(times, np.argmin(values, axis=0)[None], axis=0)[0]
