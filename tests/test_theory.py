"""Facts about the solvers, the bound and the skew measures."""

from __future__ import annotations

from fractions import Fraction
from typing import assert_type

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from isfl import rho, sampling_probabilities
from isfl.theory import SOLVERS, convergence_bound, drift_bound, effective_sample_size, skew_card
from isfl.theory.arrays import Array
from isfl.theory.exact import exact_minimum
from isfl.theory.probabilities import lowest_probabilities
from isfl.theory.rho import rho_of
from isfl.theory.water_filling import direction, first_floor

BOTH = ["paper", "exact"]


def random_problem(rng: np.random.Generator, clients: int, classes: int, missing: float = 0.3) -> tuple[Array, ...]:
    target = rng.dirichlet(np.full(classes, rng.choice([0.3, 1.0, 5.0])))
    local = rng.dirichlet(np.full(classes, 0.5), size=clients) * (rng.random((clients, classes)) > missing)
    local[local.sum(axis=1) == 0] = np.eye(classes)[0]
    local /= local.sum(axis=1, keepdims=True)
    return target, local, rng.lognormal(0.0, rng.choice([0.1, 0.7, 2.0]), size=(clients, classes))


def assert_feasible(q: Array, target: Array, local: Array, floor: float, target_floor: float) -> None:
    q, local = np.atleast_2d(q), np.atleast_2d(local)
    assert np.isfinite(q).all()
    np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-12)
    assert (q >= lowest_probabilities(np.broadcast_to(target, local.shape), local, floor, target_floor) - 1e-14).all()
    assert (q[local == 0] == 0).all()


@st.composite
def any_problem(draw: st.DrawFn) -> tuple[Array, Array, Array, float, float]:
    """Ties, zeros, missing classes, unknown and huge Lipschitz values, floors up to the limit."""
    classes = draw(st.integers(1, 8))
    clients = draw(st.integers(1, 4))
    weight = st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-9, 1.0))
    value = st.one_of(st.just(0.0), st.just(1.0), st.just(float("nan")), st.floats(1e-6, 1e6))

    def shares(rows: int) -> Array:
        raw = np.array(draw(st.lists(weight, min_size=rows * classes, max_size=rows * classes))).reshape(rows, classes)
        raw[raw.sum(axis=1) == 0, 0] = 1.0
        return np.asarray(raw / raw.sum(axis=1, keepdims=True))

    lipschitz = np.array(draw(st.lists(value, min_size=clients * classes, max_size=clients * classes)))
    floor = draw(st.sampled_from([0.0, 0.01, 0.05, 0.5, 1.0]))
    target_floor = draw(st.sampled_from([0.0, 0.3, 1.0])) * (1.0 - floor)
    return shares(1)[0], shares(clients), lipschitz.reshape(clients, classes), floor, target_floor


@pytest.mark.parametrize("solver", BOTH)
@settings(max_examples=400, deadline=None)
@given(problem=any_problem())
def test_probabilities_are_feasible_whatever_the_input(
    solver: str, problem: tuple[Array, Array, Array, float, float]
) -> None:
    target, local, lipschitz, floor, target_floor = problem
    q = sampling_probabilities(target, local, lipschitz, floor=floor, target_floor=target_floor, solver=solver)
    assert_feasible(q, target, local, floor, target_floor)


@settings(max_examples=400, deadline=None)
@given(problem=any_problem())
def test_exact_is_never_above_paper(problem: tuple[Array, Array, Array, float, float]) -> None:
    target, local, lipschitz, floor, target_floor = problem
    values = [
        np.atleast_1d(
            rho(
                sampling_probabilities(target, local, lipschitz, floor=floor, target_floor=target_floor, solver=s),
                target,
                lipschitz,
            )
        )
        for s in BOTH
    ]
    assert (values[1] <= values[0] * (1 + 1e-9) + 1e-300).all()


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
        """Of `nu = A - mu B` on a piece: `A`, and `B`, the mean cost."""
        count, zero = len(free), Fraction(0)
        return sum((d[j] for j in free), sum(low, zero) - 1) / count, sum((c[j] for j in free), zero) / count

    while True:
        # Who is above the floor just after mu: the level decides, and where it is zero its speed.
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
def test_exact_is_the_least_of_all_pieces_of_the_path(seed: int) -> None:
    """To rounding: with ties, costs of zero, classes wanted by nobody, and costs 24 orders of magnitude apart."""
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
def test_exact_is_not_misled_where_rounding_hides_the_cost(seed: int) -> None:
    """A dear class returns to a tiny floor: just before, what is left of its cost is rounding, and all that counts."""
    rng = np.random.default_rng(seed)
    target, floors = rng.dirichlet(np.ones(5)), np.append(0.01 * rng.random(4), 10.0 ** rng.uniform(-15, -10))
    costs = np.append(floors[-1] * 10.0 ** rng.uniform(-5, -2, size=4), 1.0)
    problem = target[None], costs[None], floors[None]
    ours = rho_of(exact_minimum(*problem, np.full((1, 5), True)), *problem[:2])[0]
    assert ours == pytest.approx(minimum_of_every_piece(target, costs, floors), rel=1e-12, abs=0)


def test_exact_leaves_the_piece_on_which_a_single_class_is_free() -> None:
    """All mass starts on the dear class 0; the cheap class 1 is released only after `mu` has moved alone."""
    q = sampling_probabilities([1.0, 0.0], [0.5, 0.5], [10.0, 1.0], floor=0.0, solver="exact")
    grid = np.linspace(0, 1, 100_001)
    best = np.min(rho(np.stack([grid, 1 - grid], axis=1), [1.0, 0.0], [10.0, 1.0]))
    assert rho(q, [1.0, 0.0], [10.0, 1.0]) == pytest.approx(best, rel=1e-9)
    assert q[1] > 0.5


@pytest.mark.parametrize("lipschitz", [[1e6, 1e-3, 1e-2], [1.0, 1e-9, 1e-12], [1e3, 1.0, 1.0 + 1e-9]])
def test_exact_reaches_the_minimum_when_lipschitz_values_are_far_apart(lipschitz: list[float]) -> None:
    """Where the dear class is given up, the path among the cheap ones still has to be walked."""
    p = np.array([0.4, 0.3, 0.3])
    q = sampling_probabilities(p, p, lipschitz, floor=0.0, solver="exact")
    share = np.linspace(0.0, 1.0, 200_001)
    edge = np.stack([np.zeros_like(share), share, 1 - share], axis=1)
    assert rho(q, p, lipschitz) <= np.min(rho(edge, p, lipschitz)) * (1 + 1e-9)


@pytest.mark.parametrize("solver", BOTH)
@pytest.mark.parametrize("scale", [1e-160, 1e150])
def test_the_scale_of_the_lipschitz_values_does_not_matter(solver: str, scale: float) -> None:
    p, p_k, values = [0.2, 0.3, 0.5], [0.6, 0.2, 0.2], np.array([1e-2, 1.0, 1e-5])
    np.testing.assert_allclose(
        sampling_probabilities(p, p_k, values * scale, solver=solver),
        sampling_probabilities(p, p_k, values, solver=solver),
        rtol=1e-9,
    )


def test_floors_by_hand() -> None:
    """The larger of a share of what the client holds and a share of the target, nothing for what it lacks."""
    floors = lowest_probabilities(np.array([[0.5, 0.3, 0.2]]), np.array([[0.1, 0.9, 0.0]]), 0.2, 0.4)
    np.testing.assert_allclose(floors, [[0.2, 0.18, 0.0]])
    q = sampling_probabilities([0.5, 0.3, 0.2], [0.1, 0.9, 0.0], [9.0, 1.0, 1.0], floor=0.2, target_floor=0.4)
    assert (q >= np.array([0.2, 0.18, 0.0]) - 1e-14).all()


def test_paper_by_hand_where_a_class_sits_on_its_floor() -> None:
    """p_0 equals its floor and L_0 is above average: the first step is no step, and q is the target."""
    q = sampling_probabilities([0.0, 0.5, 0.5], [0.0, 0.5, 0.5], [3.0, 1.0, 2.0], floor=0.0)
    np.testing.assert_allclose(q, [0.0, 0.5, 0.5])


def test_rounding_noise_in_equal_lipschitz_values_is_not_a_direction() -> None:
    noisy = np.full(11, 0.1) * (1 + 1e-15 * np.arange(11))
    np.testing.assert_allclose(sampling_probabilities(np.full(11, 1 / 11), np.full(11, 1 / 11), noisy), 1 / 11)


def one_client_by_theorem_3(target: Array, local: Array, lipschitz: Array, floor: float) -> Array:
    """The closed form written out class by class."""
    classes, total = len(target), float((lipschitz**2).sum())
    deviations = [1 - classes * float(lipschitz[j]) ** 2 / total for j in range(classes)]
    norm = sum(d * d for d in deviations) ** 0.5
    alpha = [d / norm for d in deviations]
    gamma = min((target[j] - floor * local[j]) / -alpha[j] for j in range(classes) if alpha[j] < 0)
    return np.array([target[j] + alpha[j] * gamma for j in range(classes)])


@pytest.mark.parametrize("seed", range(20))
def test_paper_equals_theorem_3_where_its_assumption_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    local = rng.dirichlet(np.ones(7), size=3)
    target = local.mean(axis=0)
    lipschitz = rng.lognormal(size=(3, 7))
    q = sampling_probabilities(target, local, lipschitz, floor=0.05)
    for k in range(3):
        assert (target >= 0.05 * local[k]).all()
        np.testing.assert_allclose(q[k], one_client_by_theorem_3(target, local[k], lipschitz[k], 0.05), atol=1e-12)


def test_paper_follows_theorem_3_not_algorithm_1_when_a_class_starts_below_its_floor() -> None:
    """Algorithm 1 read literally would step backwards there; Theorem 3 counts only non-negative steps."""
    target, local = np.array([[0.01, 0.5, 0.49]]), np.array([[0.8, 0.1, 0.1]])
    floors = 0.05 * local
    alpha = direction(np.array([[4.0, 1.0, 1.0]]))
    assert target[0, 0] < floors[0, 0]
    assert first_floor(target, alpha, floors)[0] == 0.0
    q = sampling_probabilities(target[0], local, [[2.0, 1.0, 1.0]])
    assert_feasible(q, target, local, 0.05, 0.0)


@pytest.mark.parametrize("solver", BOTH)
def test_many_clients_at_once_equal_one_at_a_time_to_the_last_bit(solver: str) -> None:
    target, local, lipschitz = random_problem(np.random.default_rng(5), 50, 12)
    together = sampling_probabilities(target, local, lipschitz, solver=solver)
    alone = [sampling_probabilities(target, local[k], lipschitz[k], solver=solver) for k in range(50)]
    np.testing.assert_array_equal(together, np.stack(alone))


@pytest.mark.parametrize("solver", BOTH)
def test_equal_lipschitz_values_give_the_target_on_the_support(solver: str) -> None:
    local = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    q = sampling_probabilities([0.2, 0.3, 0.5], local, np.full((2, 3), 0.1), solver=solver)
    np.testing.assert_allclose(q[1], [0.2, 0.3, 0.5], atol=1e-12)
    if solver == "paper":
        np.testing.assert_allclose(q[0], [0.4, 0.6, 0.0], atol=1e-12)


@pytest.mark.parametrize("solver", BOTH)
def test_a_class_of_unknown_lipschitz_value_counts_as_average(solver: str) -> None:
    known, unknown = [1.0, 2.0, np.sqrt(2.5)], [1.0, 2.0, np.nan]
    target, local = [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]
    np.testing.assert_allclose(
        sampling_probabilities(target, local, unknown, solver=solver),
        sampling_probabilities(target, local, known, solver=solver),
        atol=1e-12,
    )


def test_each_client_may_have_a_target_of_its_own() -> None:
    targets = np.array([[0.8, 0.2], [0.1, 0.9]])
    q = sampling_probabilities(targets, [[0.5, 0.5]] * 2, [[1.0, 1.0]] * 2)
    np.testing.assert_allclose(q, targets, atol=1e-12)


def test_the_exact_minimum_is_degenerate_with_small_floors_and_not_with_a_target_floor() -> None:
    """Why `paper` is the default policy: the minimum abandons every class but those with the smallest L."""
    target, local = np.full(10, 0.1), np.array([0.45, 0.45] + [0.0125] * 8)
    lipschitz = np.linspace(17.0, 61.0, 10)
    degenerate = sampling_probabilities(target, local, lipschitz, solver="exact")
    held_back = sampling_probabilities(target, local, lipschitz, solver="exact", target_floor=0.8)
    assert (degenerate < 0.001).sum() == 8
    assert held_back.min() >= 0.08 - 1e-12


def test_rho_of_one_vector_is_a_float_and_of_rows_an_array() -> None:
    one, many = rho([0.5, 0.5], [0.5, 0.5], [1.0, 3.0]), rho([[0.5, 0.5], [0.75, 0.25]], [0.5, 0.5], [1.0, 3.0])
    assert_type(one, float)
    assert_type(many, Array)
    assert isinstance(one, float) and one == 5.0
    np.testing.assert_array_equal(many, [5.0, 3.375])


@pytest.mark.parametrize("solver", list(SOLVERS))
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 0.5], [[1.0, np.nan]], [[1.0, 1.0]]), r"local\[0, 1\]"),
        (([0.5, 0.4], [[0.5, 0.5]], [[1.0, 1.0]]), r"target sums to 0.9"),
        (([0.5, 0.5], [[0.5, 0.5]] * 2, [[1.0, 1.0], [-1.0, 1.0]]), r"lipschitz\[1, 0\]"),
        (([0.5, 0.5], [[0.5, 0.5]], [[np.inf, 1.0]]), r"lipschitz\[0, 0\]"),
        (([0.2, 0.3, 0.5], [[0.5, 0.5]], [[1.0, 1.0]]), "target has 3 classes where local has 2"),
        (([[0.5, 0.5]] * 3, [[0.5, 0.5]] * 2, [[1.0, 1.0]] * 2), "target has 3 rows where 2 clients"),
    ],
)
def test_wrong_input_is_named_with_its_index(solver: str, arguments: tuple[Array, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sampling_probabilities(*arguments, solver=solver)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"floor": 1.5}, "floor is 1.5"),
        ({"target_floor": -0.1}, "target_floor is -0.1"),
        ({"floor": 0.7, "target_floor": 0.7}, "cannot be met"),
        ({"solver": "magic"}, "choose one of 'paper', 'exact'"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sampling_probabilities([0.5, 0.5], [0.5, 0.5], [1.0, 1.0], **options)  # type: ignore[arg-type]


def test_rho_by_hand() -> None:
    # (1 + 0.1^2 + 0.1^2) * (0.6 * 4 + 0.4 * 1)
    assert rho([0.6, 0.4], [0.5, 0.5], [2.0, 1.0]) == pytest.approx(1.02 * 2.8)
    np.testing.assert_allclose(rho([[0.6, 0.4], [0.5, 0.5]], [0.5, 0.5], [2.0, 1.0]), [1.02 * 2.8, 2.5])


def test_the_bound_by_hand() -> None:
    """Two clients, four steps, aggregation every two: phi restarts at t = 2."""
    bound = convergence_bound(
        loss_gap=2.0,
        learning_rate=0.1,
        local_steps=2,
        num_classes=3,
        weights=[0.25, 0.75],
        rho=[2.0, 4.0],
        gradient_norm=[1.0, 2.0, 3.0, 4.0],
        variance=[[1.0, 2.0]] * 4,
        mean_lipschitz=5.0,
    )
    mean_variance = 0.25 * 1 + 0.75 * 2
    phi = np.array([2 * 1 + 1 + mean_variance + 2 * 9 + 1 + mean_variance, 0.0])
    phi[1] = phi[0] + 2.0  # the second client's variance is larger by one in both summands
    np.testing.assert_allclose(bound.phi, phi)
    assert bound.initial == pytest.approx(2 * 2.0 / (0.1 * 4))
    assert bound.psi == pytest.approx(0.1 * 5 * mean_variance + 2 * 3 * (1 + 4 + 9 + 16) / 4)
    assert bound.sampling == pytest.approx(2 * 0.01 * 2 / 4 * (0.25 * 2 * phi[0] + 0.75 * 4 * phi[1]))
    assert bound.total == pytest.approx(bound.initial + bound.psi + bound.sampling)
    assert bound.step_condition == pytest.approx(0.5)


def test_clients_that_pull_apart_for_many_steps_keep_lemma_1_in_steps_and_break_it_in_epochs() -> None:
    """Two clients with constant, opposite gradients of norm 1, five epochs of eight steps: each moves eta * 40 away."""
    eta, epochs, per_epoch = 0.1, 5, 8
    measured = (eta * epochs * per_epoch) ** 2

    def bound(steps: int) -> float:
        return float(drift_bound(eta, np.ones(steps), np.zeros((steps, 2)), [0.5, 0.5])[0])

    assert measured == pytest.approx(bound(epochs * per_epoch) / 4)  # 2 eta^2 E_l phi with phi = 2 E_l
    assert measured > 10 * bound(epochs)


def test_the_drift_bound_by_hand() -> None:
    bound = drift_bound(0.1, [1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], [0.25, 0.75])
    growth = [(2 + 1 + 1.75) + (8 + 3 + 3.75), (2 + 2 + 1.75) + (8 + 4 + 3.75)]
    np.testing.assert_allclose(bound, 2 * 0.01 * 2 * np.array(growth))


def test_the_bound_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"variance\[0, 1\]"):
        convergence_bound(
            loss_gap=1.0,
            learning_rate=0.1,
            local_steps=1,
            num_classes=2,
            weights=[0.5, 0.5],
            rho=[1.0, 1.0],
            gradient_norm=[1.0],
            variance=[[1.0, np.nan]],
            mean_lipschitz=1.0,
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"local_steps": 0}, "local_steps is 0"),
        ({"weights": [5.0, 5.0]}, "weights sum to 10"),
        ({"loss_gap": float("nan")}, "loss_gap is nan"),
        ({"mean_lipschitz": -3.0}, "mean_lipschitz is -3"),
        ({"gradient_norm": []}, "at least one step"),
        ({"rho": [1.0]}, r"rho \(K,\)"),
    ],
)
def test_a_bound_of_impossible_quantities_is_refused(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {
        "loss_gap": 1.0,
        "learning_rate": 0.1,
        "local_steps": 1,
        "num_classes": 2,
        "weights": [0.5, 0.5],
        "rho": [1.0, 1.0],
        "gradient_norm": [1.0],
        "variance": [[1.0, 1.0]],
        "mean_lipschitz": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        convergence_bound(**{**given, **change})  # type: ignore[arg-type]


def test_skew_of_identical_and_of_disjoint_clients() -> None:
    same = skew_card([[10, 20], [5, 10]])
    np.testing.assert_allclose(same.hellinger, 0.0, atol=1e-7)
    np.testing.assert_allclose(same.total_variation, 0.0, atol=1e-12)
    np.testing.assert_allclose(same.effective_size, [30, 15])
    apart = skew_card([[10, 0], [0, 10]])
    np.testing.assert_allclose(apart.total_variation, 0.5)
    np.testing.assert_allclose(apart.hellinger, np.sqrt(1 - np.sqrt(0.5)))
    np.testing.assert_array_equal(apart.missing, [1, 1])


def test_effective_sample_size_equals_its_definition_sample_by_sample() -> None:
    counts, q = np.array([[30, 5, 1]]), np.array([[0.2, 0.5, 0.3]])
    weights = np.repeat(q[0] / (counts[0] / counts.sum()), counts[0])
    assert effective_sample_size(counts, q)[0] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())


@pytest.mark.parametrize(
    ("counts", "message"),
    [([[1, -1]], r"counts\[0, 1\]"), ([[1, 0.5]], r"counts\[0, 1\]"), ([[1, 1], [0, 0]], r"counts\[1\] sums to 0")],
)
def test_counts_that_are_none_are_refused(counts: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        skew_card(counts)
