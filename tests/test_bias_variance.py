"""The bias-variance objective, its exact solver, and the noise of measured moments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from isfl.federation.sampling_rules.target import target_on_support
from isfl.theory.arrays import Array
from isfl.theory.bias_variance import Moments, bias_variance_probabilities, estimate_moments, gradient_error


def random_moments(rng: np.random.Generator, classes: int, rank: int | None = None, noise: float = 1.0) -> Moments:
    gradients = rng.normal(size=(classes, rank or classes + 3))
    return Moments(gradients @ gradients.T, noise * rng.lognormal(3.0, 1.0, size=classes))


def random_counts(rng: np.random.Generator, clients: int, classes: int) -> Array:
    counts = np.floor(rng.lognormal(2.0, 2.0, size=(clients, classes))) * (rng.random((clients, classes)) > 0.3)
    counts[counts.sum(axis=1) == 0, 0] = 1.0
    return np.asarray(counts)


def by_slsqp(target: Array, counts: Array, moments: Moments, weight: float) -> float:
    """The smallest error that a general-purpose optimiser finds, from several starts."""
    held = np.flatnonzero(counts)
    scale = float(gradient_error(np.eye(len(counts))[held[0]], target, counts, moments, weight=weight)[0]) or 1.0

    def error(part: Array) -> float:
        q = np.zeros(len(counts))
        q[held] = part
        return float(gradient_error(q, target, counts, moments, weight=weight)[0]) / scale

    starts = [np.full(len(held), 1 / len(held)), counts[held] / counts.sum(), *np.eye(len(held))[:3]]
    found = [
        minimize(
            error,
            start,
            method="SLSQP",
            bounds=[(0, 1)] * len(held),
            constraints={"type": "eq", "fun": lambda part: part.sum() - 1},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        for start in starts
    ]
    # What it returns sums to one only up to a tolerance of its own.
    return min(error(np.maximum(each.x, 0) / np.maximum(each.x, 0).sum()) for each in found) * scale


@pytest.mark.parametrize(("rank", "noise"), [(None, 1.0), (2, 1.0), (None, 0.0), (1, 0.0), (None, 1e4)], ids=str)
@pytest.mark.parametrize("classes", [2, 5, 10])
def test_the_solver_is_at_least_as_good_as_a_general_purpose_optimiser(
    classes: int, rank: int | None, noise: float
) -> None:
    """Singular M, no variance, variance alone; targets that want classes the client lacks."""
    rng = np.random.default_rng(classes)
    for _ in range(6):
        moments, weight = random_moments(rng, classes, rank, noise), float(rng.choice([0.3, 1.0, 3.0]))
        counts = random_counts(rng, 3, classes)
        target = rng.dirichlet(np.full(classes, 0.5), size=3)
        found = bias_variance_probabilities(target, counts, moments, weight=weight)
        for q, p, n in zip(found, target, counts, strict=True):
            best = by_slsqp(p, n, moments, weight)
            slack = 1e-8 * (p @ moments.gram @ p + moments.gram.diagonal().max())
            assert float(gradient_error(q, p, n, moments, weight=weight)[0]) <= best + slack


@st.composite
def any_problem(draw: st.DrawFn) -> tuple[Array, Array, Moments, float]:
    """Ties, zeros, missing classes, moments of any rank and of sizes far apart."""
    classes, clients = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    number = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-6, 1e3])
    gradients = np.array(draw(st.lists(number, min_size=2 * classes, max_size=2 * classes))).reshape(classes, 2)
    variance = np.abs(np.array(draw(st.lists(number, min_size=classes, max_size=classes))))
    size = st.sampled_from([0, 1, 5, 1000])
    counts = np.array(draw(st.lists(size, min_size=clients * classes, max_size=clients * classes)), dtype=np.float64)
    counts = counts.reshape(clients, classes)
    counts[counts.sum(axis=1) == 0, 0] = 3.0
    target = np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 1e-9]), min_size=classes, max_size=classes)))
    target[-1] += target.sum() == 0
    return target / target.sum(), counts, Moments(gradients @ gradients.T, variance), draw(st.sampled_from([0.0, 1.0]))


@settings(max_examples=400, deadline=None)
@given(problem=any_problem())
def test_probabilities_are_feasible_and_no_step_to_a_class_improves_them(
    problem: tuple[Array, Array, Moments, float],
) -> None:
    target, counts, moments, weight = problem
    found = bias_variance_probabilities(target, counts, moments, weight=weight)
    assert np.isfinite(found).all() and (found >= 0).all() and (found[counts == 0] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    for q, n in zip(found, counts, strict=True):
        here = float(gradient_error(q, target, n, moments, weight=weight)[0])
        slack = 1e-8 * (np.abs(moments.gram).max() + weight * moments.variance.max())
        for i in np.flatnonzero(n):
            for step in (1.0, 0.1, 1e-3):
                other = (1 - step) * q + step * np.eye(len(q))[i]
                assert here <= float(gradient_error(other, target, n, moments, weight=weight)[0]) + slack


def test_orthogonal_gradients_by_hand() -> None:
    """M = diag(m), all classes held: `q_i = (p_i m_i + mu) / (m_i + v_i / n_i)`."""
    m, v, n, p = np.array([1.0, 2.0, 4.0]), np.array([3.0, 1.0, 2.0]), np.array([3.0, 10.0, 1.0]), np.full(3, 1 / 3)
    level = (1 - (p * m / (m + v / n)).sum()) / (1 / (m + v / n)).sum()
    expected = (p * m + level) / (m + v / n)
    assert (expected > 0).all()
    np.testing.assert_allclose(bias_variance_probabilities(p, n, Moments(np.diag(m), v)), expected, atol=1e-9)


def test_without_variance_and_with_all_classes_it_is_the_target() -> None:
    moments = Moments(np.diag([1.0, 2.0, 3.0]), np.zeros(3))
    target = np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(bias_variance_probabilities(target, np.array([1.0, 2, 3]), moments), target, atol=1e-9)


def test_without_any_gradient_it_is_the_target_on_the_support() -> None:
    counts, target = np.array([5.0, 0.0, 2.0]), np.array([0.2, 0.5, 0.3])
    found = bias_variance_probabilities(target, counts, Moments(np.zeros((3, 3)), np.zeros(3)))
    np.testing.assert_allclose(found, target_on_support(counts, target))


def test_variance_alone_draws_in_proportion_to_samples_over_variance() -> None:
    """With a huge weight `sum q_i^2 v_i / n_i` is all there is: `q_i` proportional to `n_i / v_i`."""
    variance, counts = np.array([1.0, 2.0, 4.0]), np.array([10.0, 10.0, 5.0])
    found = bias_variance_probabilities(np.full(3, 1 / 3), counts, Moments(np.eye(3), variance), weight=1e9)
    np.testing.assert_allclose(found, counts / variance / (counts / variance).sum(), rtol=1e-6)


def test_a_class_that_stands_in_for_a_missing_one_takes_its_share() -> None:
    """Classes 1 and 2 have the same gradient and the client lacks 2: it draws class 1 for both."""
    gradients = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    moments = Moments(gradients @ gradients.T, np.zeros(3))
    found = bias_variance_probabilities(np.array([0.4, 0.3, 0.3]), np.array([5.0, 5.0, 0.0]), moments)
    np.testing.assert_allclose(found, [0.4, 0.6, 0.0], atol=1e-8)


def test_many_clients_at_once_are_each_client_alone() -> None:
    rng = np.random.default_rng(0)
    moments, counts, target = random_moments(rng, 10), random_counts(rng, 40, 10), rng.dirichlet(np.ones(10))
    together = bias_variance_probabilities(target, counts, moments)
    alone = [bias_variance_probabilities(target, row, moments) for row in counts]
    np.testing.assert_allclose(together, alone, atol=1e-12)


def test_the_error_is_the_mean_squared_error_of_simulated_clients() -> None:
    """Draw the samples of many clients: the objective is what their mean gradients miss the target's by."""
    rng = np.random.default_rng(1)
    means, spread, counts = rng.normal(size=(3, 4)), np.array([0.5, 1.0, 2.0]), np.array([3, 8, 2])
    q, p = np.array([0.3, 0.6, 0.1]), np.array([0.2, 0.3, 0.5])
    errors = []
    for _ in range(20000):
        drawn = [m + s * rng.normal(size=(n, 4)) for m, s, n in zip(means, spread, counts, strict=True)]
        errors.append(np.sum((q @ np.stack([rows.mean(axis=0) for rows in drawn]) - p @ means) ** 2))
    moments = Moments(means @ means.T, 4 * spread**2)
    assert np.mean(errors) == pytest.approx(float(gradient_error(q, p, counts, moments)[0]), rel=0.02)


def test_the_noise_of_a_small_public_set_is_subtracted() -> None:
    """Over many public sets the estimated moments have the true ones as their mean; the raw matrix is too large.

    The gradients are so long that no eigenvalue is negative: the projection changes nothing here.
    """
    rng = np.random.default_rng(2)
    means, spread, samples = 10 * rng.normal(size=(3, 4)), np.array([0.5, 1.0, 2.0]), np.array([5, 3, 2])
    variance, raw, gram, found = 4 * spread**2, np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(3)
    for _ in range(20000):
        drawn = [m + s * rng.normal(size=(n, 4)) for m, s, n in zip(means, spread, samples, strict=True)]
        centres = np.stack([rows.mean(axis=0) for rows in drawn])
        squares = np.array([(rows**2).sum(axis=1).mean() for rows in drawn])
        moments = estimate_moments(centres @ centres.T, squares, samples)
        assert moments is not None
        raw += centres @ centres.T / 20000
        gram += moments.gram / 20000
        found += moments.variance / 20000
    truth = means @ means.T
    np.testing.assert_allclose(np.diag(raw) - np.diag(truth), variance / samples, rtol=0.3)
    np.testing.assert_allclose(gram, truth, atol=0.5)
    np.testing.assert_allclose(found, variance, rtol=0.05)


def test_a_corrected_matrix_is_the_nearest_positive_semi_definite_one() -> None:
    """Variances 8 and 2 from two samples each: the diagonal is 1 - 8 / 2 and 5 - 2 / 2."""
    moments = estimate_moments(np.diag([1.0, 5.0]), np.array([5.0, 6.0]), np.array([2.0, 2.0]))
    assert moments is not None
    np.testing.assert_allclose(moments.variance, [8.0, 2.0])
    np.testing.assert_allclose(moments.gram, np.diag([0.0, 4.0]), atol=1e-12)


def test_classes_the_public_set_lacks_count_as_average() -> None:
    gram = np.array([[10.0, 2.0, 9e9], [2.0, 20.0, 9e9], [9e9, 9e9, 9e9]])
    moments = estimate_moments(gram, np.array([12.0, 26.0, 9e9]), np.array([2.0, 2.0, 0.0]))
    assert moments is not None
    np.testing.assert_allclose(moments.variance, [4.0, 12.0, 8.0])
    np.testing.assert_allclose(moments.gram, [[8.0, 2.0, 2.0], [2.0, 14.0, 2.0], [2.0, 2.0, 11.0]])


def test_the_variance_of_a_single_sample_counts_as_average_and_without_pairs_nothing_is_known() -> None:
    moments = estimate_moments(np.diag([10.0, 20.0]), np.array([12.0, 20.0]), np.array([2.0, 1.0]))
    assert moments is not None
    np.testing.assert_allclose(moments.variance, [4.0, 4.0])
    np.testing.assert_allclose(moments.gram, np.diag([8.0, 16.0]))
    assert estimate_moments(np.diag([10.0, 20.0]), np.array([10.0, 20.0]), np.array([1.0, 1.0])) is None


def test_moments_survive_packing() -> None:
    moments = random_moments(np.random.default_rng(0), 4)
    back = Moments.unpacked(moments.packed())
    assert len(moments.packed()) == 4 * 5
    np.testing.assert_array_equal(back.gram, moments.gram)
    np.testing.assert_array_equal(back.variance, moments.variance)
    with pytest.raises(ValueError, match="7 numbers are not the moments"):
        Moments.unpacked(np.zeros(7))


@pytest.mark.parametrize(
    ("counts", "variance", "weight", "message"),
    [
        ([0.0, 0.0], [1.0, 1.0], 1.0, "at least one sample"),
        ([1.0, 1.0], [1.0, 1.0], -1.0, "weight is -1"),
        ([1.0, 1.0], [1.0, np.nan], 1.0, "moments must be finite"),
        ([1.0, 1.0, 1.0], [1.0, 1.0], 1.0, "gram has 2 classes where counts has 3"),
    ],
)
def test_wrong_arguments_are_named(counts: list[float], variance: list[float], weight: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bias_variance_probabilities(
            np.full(len(counts), 1 / len(counts)), counts, Moments(np.eye(2), np.array(variance)), weight=weight
        )
