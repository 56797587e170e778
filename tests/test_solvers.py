"""Both solvers: feasible for any input, equal to the paper's closed form, wrong input refused."""

from __future__ import annotations

from typing import assert_type

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isfl import rho, sampling_probabilities
from isfl.theory import SOLVERS
from isfl.theory.arrays import Array
from isfl.theory.probabilities import lowest_probabilities
from isfl.theory.water_filling import direction, first_floor
from tests.worlds import random_problem

BOTH = ["paper", "exact"]


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
    """The larger of a share of the local mix and a share of the target; zero for missing classes."""
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


def test_a_class_that_nobody_holds_stops_the_step_only_if_its_lipschitz_value_is_above_average() -> None:
    target, local = np.array([[0.5, 0.5, 0.0]]), np.array([[0.8, 0.2, 0.0]])
    for lipschitz, moves in (([1.0, 2.0, 3.0], False), ([1.0, 2.0, 0.5], True)):
        alpha = direction(np.array([lipschitz]) ** 2)
        assert (first_floor(target, alpha, 0.05 * local)[0] > 0) == moves
        assert (sampling_probabilities(target, local, [lipschitz])[0, 0] > 0.5) == moves


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


def test_each_client_can_have_its_own_target() -> None:
    targets = np.array([[0.8, 0.2], [0.1, 0.9]])
    q = sampling_probabilities(targets, [[0.5, 0.5]] * 2, [[1.0, 1.0]] * 2)
    np.testing.assert_allclose(q, targets, atol=1e-12)


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
