"""The exact solver against slow oracles: general optimisers, grids, and the path in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from isfl import rho, sampling_probabilities
from isfl.theory import exact
from isfl.theory.arrays import Array
from isfl.theory.exact import exact_minimum
from isfl.theory.probabilities import lowest_probabilities
from isfl.theory.rho import rho_of
from tests.worlds import random_problem


def slsqp_minimum(target: Array, local: Array, lipschitz: Array, floors: Array, rng: np.random.Generator) -> float:
    """The least rho found by a general-purpose optimiser from many feasible starts, for one client."""
    held = local > 0
    p, cost, low = target[held], lipschitz[held] ** 2, floors[held]
    outside = (target[~held] ** 2).sum()
    scale = cost.max()

    def value(q: Array) -> float:
        return float((1 + outside + ((p - q) ** 2).sum()) * (q * cost).sum() / scale)

    best = np.inf
    for _ in range(12):
        start = low + (1 - low.sum()) * rng.dirichlet(np.full(len(p), rng.choice([0.1, 1.0])))
        found = minimize(
            value,
            start,
            method="SLSQP",
            bounds=[(lo, 1.0) for lo in low],
            constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
            options={"ftol": 1e-15, "maxiter": 500},
        )
        q = np.maximum(found.x, low)
        q = low + (q - low) * (1 - low.sum()) / max((q - low).sum(), 1e-300)
        best = min(best, value(q))
    return best * scale


@pytest.mark.parametrize("seed", range(40))
def test_exact_is_not_beaten_by_a_general_optimiser(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target, local, lipschitz = random_problem(rng, 1, int(rng.integers(2, 9)))
    floor, target_floor = float(rng.choice([0.0, 0.05, 0.3])), float(rng.choice([0.0, 0.4]))
    q = sampling_probabilities(target, local, lipschitz, floor=floor, target_floor=target_floor, solver="exact")
    ours = np.atleast_1d(rho(q, target, lipschitz))[0]
    floors = lowest_probabilities(target[None], local, floor, target_floor)[0]
    assert ours <= slsqp_minimum(target, local[0], lipschitz[0], floors, rng) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_exact_is_not_beaten_by_a_fine_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target, local, lipschitz = random_problem(rng, 1, 3, missing=0.0)
    floors = lowest_probabilities(target[None], local, 0.05, 0.2)[0]
    first, second = np.meshgrid(np.linspace(0, 1, 600), np.linspace(0, 1, 600))
    grid = np.stack([first.ravel(), second.ravel(), 1 - first.ravel() - second.ravel()], axis=1)
    grid = floors + (1 - floors.sum()) * grid[grid[:, 2] >= 0]
    q = sampling_probabilities(target, local[0], lipschitz[0], floor=0.05, target_floor=0.2, solver="exact")
    assert rho(q, target, lipschitz[0]) <= np.min(rho(grid, target, lipschitz[0])) * (1 + 1e-9)


def minimum_of_every_piece(p: Array, cost: Array, floors: Array) -> float:
    """The least rho of one client with all classes: the path from the target walked piece by piece in fractions."""
    d, c = ([Fraction(float(x)) for x in values] for values in (p - floors, cost))
    low = [Fraction(float(x)) for x in floors]
    mu, best = Fraction(0), np.inf

    def water(free: list[int]) -> tuple[Fraction, Fraction]:
        """Return `A` and the mean cost `B` of `nu = A - mu B` on a piece."""
        count, zero = len(free), Fraction(0)
        return sum((d[j] for j in free), sum(low, zero) - 1) / count, sum((c[j] for j in free), zero) / count

    while True:
        # Classes above the floor just after mu: the level decides, and at level zero its derivative.
        free: list[int] = []
        for i in sorted(range(len(d)), key=lambda i: (d[i] - mu * c[i], -c[i]), reverse=True):
            nu, mean = water([*free, i])
            if (d[i] - mu * c[i], -c[i]) <= (nu - mu * mean, -mean):
                break
            free.append(i)
        nu, mean = water(free)
        variation = sum((c[j] - mean) ** 2 for j in free)
        alpha = 1 + sum(x * x for x in d) - sum(d[j] ** 2 for j in free) + len(free) * nu**2
        beta = sum(x * y for x, y in zip(low, c, strict=True)) + sum(c[j] * (d[j] - nu) for j in free)
        ends = [(d[i] - nu) / (c[i] - mean) for i in range(len(d)) if c[i] != mean and (i in free) == (c[i] > mean)]
        if not ends:
            return min(best, float(alpha * beta))
        roots = np.roots([float(3 * variation), float(-2 * beta), float(alpha)])
        times = [mu, min(ends), *(Fraction(x.real) for x in roots if x.imag == 0 and mu < x.real < min(ends))]
        best = min(best, *(float((alpha + t * t * variation) * (beta - t * variation)) for t in times))
        mu = min(ends)


@pytest.mark.parametrize("seed", range(300))
def test_exact_is_the_minimum_over_all_pieces_of_the_path(seed: int) -> None:
    """Up to rounding: with ties, zero costs, classes outside the target, and costs 24 orders of magnitude apart."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 9))
    costs = [
        rng.lognormal(0.0, 1.5, size=classes),
        rng.choice([0.0, 1.0, 2.0], size=classes),
        10.0 ** rng.uniform(-24, 0, size=classes),
        rng.choice([1e-12, 1.0, 1.0 + 1e-9, 1e6], size=classes),
    ][seed % 4]
    target = rng.dirichlet(np.full(classes, 0.7)) * (rng.random(classes) > 0.2) + 1e-9 * rng.integers(0, 2)
    target = np.eye(classes)[0] if target.sum() == 0 else target / target.sum()
    floor, target_floor = float(rng.choice([0.0, 0.05, 0.4])), float(rng.choice([0.0, 0.3]))
    local = rng.dirichlet(np.full(classes, rng.choice([0.1, 1.0]))) + 1e-12
    local /= local.sum()
    problem = target[None], costs[None], lowest_probabilities(target[None], local[None], floor, target_floor)
    ours = rho_of(exact_minimum(*problem, local[None] > 0), *problem[:2])[0]
    assert ours == pytest.approx(minimum_of_every_piece(*(x[0] for x in problem)), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("seed", range(60))
def test_exact_reaches_the_minimum_where_rounding_hides_the_cost(seed: int) -> None:
    """An expensive class returns to a tiny floor: just before, only rounding is left of the cost that decides."""
    rng = np.random.default_rng(seed)
    target, floors = rng.dirichlet(np.ones(5)), np.append(0.01 * rng.random(4), 10.0 ** rng.uniform(-15, -10))
    costs = np.append(floors[-1] * 10.0 ** rng.uniform(-5, -2, size=4), 1.0)
    problem = target[None], costs[None], floors[None]
    ours = rho_of(exact_minimum(*problem, np.full((1, 5), True)), *problem[:2])[0]
    assert ours == pytest.approx(minimum_of_every_piece(target, costs, floors), rel=1e-12, abs=0)


def test_exact_leaves_the_piece_on_which_a_single_class_is_free() -> None:
    """All mass starts on the expensive class 0; the cheap class 1 becomes free only after `mu` has moved."""
    q = sampling_probabilities([1.0, 0.0], [0.5, 0.5], [10.0, 1.0], floor=0.0, solver="exact")
    grid = np.linspace(0, 1, 100_001)
    best = np.min(rho(np.stack([grid, 1 - grid], axis=1), [1.0, 0.0], [10.0, 1.0]))
    assert rho(q, [1.0, 0.0], [10.0, 1.0]) == pytest.approx(best, rel=1e-9)
    assert q[1] > 0.5


@pytest.mark.parametrize("lipschitz", [[1e6, 1e-3, 1e-2], [1.0, 1e-9, 1e-12], [1e3, 1.0, 1.0 + 1e-9]])
def test_exact_reaches_the_minimum_when_lipschitz_values_are_far_apart(lipschitz: list[float]) -> None:
    """After the expensive class reaches its floor, the path among the cheap ones continues."""
    p = np.array([0.4, 0.3, 0.3])
    q = sampling_probabilities(p, p, lipschitz, floor=0.0, solver="exact")
    share = np.linspace(0.0, 1.0, 200_001)
    edge = np.stack([np.zeros_like(share), share, 1 - share], axis=1)
    assert rho(q, p, lipschitz) <= np.min(rho(edge, p, lipschitz)) * (1 + 1e-9)


def test_the_exact_minimum_is_degenerate_with_small_floors_and_not_with_a_target_floor() -> None:
    """Why `paper` is the default policy: the minimum abandons every class but those with the smallest L."""
    target, local = np.full(10, 0.1), np.array([0.45, 0.45] + [0.0125] * 8)
    lipschitz = np.linspace(17.0, 61.0, 10)
    degenerate = sampling_probabilities(target, local, lipschitz, solver="exact")
    held_back = sampling_probabilities(target, local, lipschitz, solver="exact", target_floor=0.8)
    assert (degenerate < 0.001).sum() == 8
    assert held_back.min() >= 0.08 - 1e-12


@pytest.mark.parametrize(("classes", "pieces"), [(10, 4), (100, 6)])
def test_exact_solves_few_pieces_of_the_path(classes: int, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    solved, solve = 0, exact._piece

    def counted(path: Any, row: Any, *where: Any) -> Any:
        nonlocal solved
        solved += len(row)
        return solve(path, row, *where)

    monkeypatch.setattr(exact, "_piece", counted)
    rng = np.random.default_rng(1)
    local, lipschitz = rng.dirichlet(np.full(classes, 0.5), 500), rng.lognormal(size=(500, classes))
    sampling_probabilities(np.full(classes, 1 / classes), local, lipschitz, solver="exact")
    assert pieces - 1 < solved / 500 < pieces
