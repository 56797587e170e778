"""Candidates for a sampling policy: shrunk and capped targets, decaying temperatures, ISFL with a strength."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from isfl import sampling_probabilities
from isfl.data import Dataset
from isfl.errors import UserError
from isfl.federation import start
from isfl.federation.sampling_rules import RULES, Known, LocalData, Stream
from isfl.federation.sampling_rules.capped import CappedRepeats
from isfl.federation.sampling_rules.isfl import ImportanceSampling
from isfl.federation.sampling_rules.shrunk import ShrunkTarget
from isfl.federation.sampling_rules.target import target_on_support
from isfl.federation.sampling_rules.tempered import Tempered
from isfl.problem.config import parse_config
from isfl.theory.arrays import Array
from isfl.theory.probabilities import lowest_probabilities
from tests.clients import any_client, assert_drawable
from tests.worlds import COUNTS, engine_of, federate, same_bits, settings_of

COUNTED, TARGET = np.array([300.0, 50.0, 5.0, 0.0]), np.array([0.1, 0.2, 0.3, 0.4])


# ---------------------------------------------------------------- every rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.model_fields["rule"].default)
@settings(max_examples=100, deadline=None)
@given(client=any_client(), round=st.integers(1, 5))
def test_every_rule_gives_probabilities_on_the_classes_held(rule: Any, client: tuple[Array, Array], round: int) -> None:
    counts, target = client
    assert_drawable(rule().class_probabilities(counts, target), counts)
    assert_drawable(rule().own_probabilities(Known(counts, target, round, 5, 2.0)), counts)


# ---------------------------------------------------------------- shrunk


def test_shrunk_is_the_target_times_the_reliability_of_the_local_samples() -> None:
    expected = np.array([0.1 * 300 / 350, 0.2 * 50 / 100, 0.3 * 5 / 55, 0.0])
    found = ShrunkTarget(prior_samples=50.0).class_probabilities(COUNTED, TARGET)
    np.testing.assert_allclose(found, expected / expected.sum())


def test_shrunk_without_a_prior_is_the_target_on_the_support_to_the_last_bit() -> None:
    found = ShrunkTarget(prior_samples=0.0).class_probabilities(COUNTED, TARGET)
    np.testing.assert_array_equal(found, target_on_support(COUNTED, TARGET))


def test_shrunk_with_a_huge_prior_is_target_times_local_mix() -> None:
    found = ShrunkTarget(prior_samples=1e12).class_probabilities(COUNTED, TARGET)
    np.testing.assert_allclose(found, TARGET * COUNTED / (TARGET @ COUNTED), rtol=1e-9)


@settings(max_examples=100, deadline=None)
@given(client=any_client(), prior=st.sampled_from([1e-3, 1.0, 50.0, 1e6]))
def test_shrunk_gives_rare_classes_less_than_the_target_does(client: tuple[Array, Array], prior: float) -> None:
    """The ratio to the target grows with the number of samples."""
    counts, target = client
    q, wanted = ShrunkTarget(prior_samples=prior).class_probabilities(counts, target), target_on_support(counts, target)
    assert_drawable(q, counts)
    order = [i for i in np.argsort(counts) if wanted[i] > 1e-6]
    assert (np.diff(q[order] / wanted[order]) >= -1e-9).all()


@pytest.mark.parametrize("scheme", ["shrunk", "capped", "bias-variance"])
def test_class_counts_stay_at_the_client_unless_the_target_needs_them(scheme: str) -> None:
    for target, known in (
        ({"kind": "global"}, True),
        ({"kind": "local"}, True),
        ({"kind": "uniform"}, False),
        ({"kind": "given", "shares": [0.4, 0.3, 0.2, 0.1]}, False),
    ):
        settings = settings_of(scheme, target=target, training={"rounds": 2})
        engine = engine_of(settings)
        assert all((profile.class_counts is not None) == known for profile in engine.introduce())
        assert (start(settings, engine).counts is not None) == known


@pytest.mark.parametrize("scheme", ["shrunk", "capped", "bias-variance"])
def test_diagnostics_do_not_need_the_counts_a_client_keeps(scheme: str) -> None:
    """A simulation sees rho; a server that sees no client would leave it out."""
    parts: dict[str, Any] = {"target": {"kind": "uniform"}, "training": {"rounds": 2}}
    plain, _ = federate(settings_of(scheme, **parts))
    measured, reports = federate(settings_of(scheme, diagnostics={"lipschitz": True}, **parts))
    assert same_bits(plain, measured) and reports[-1].rho.used is not None


# ---------------------------------------------------------------- capped


def capped(rule: CappedRepeats, counts: Array = COUNTED, passes: float = 2.0, round: int = 3) -> Array:
    return rule.own_probabilities(Known(counts, TARGET, round, 9, passes))


def test_capped_is_the_target_with_repeats_that_saturate() -> None:
    """On the classes held the target is 1/6, 1/3, 1/2; two passes over 355 samples are 710 draws."""
    wanted = np.array([1 / 6, 1 / 3, 1 / 2])
    repeated = 710 * wanted / COUNTED[:3]
    expected = COUNTED[:3] * repeated / (1 + repeated / 4.0)
    np.testing.assert_allclose(capped(CappedRepeats(repeats=4.0))[:3], expected / expected.sum())


def test_scaling_raises_the_repeats_of_capped_above_its_limit() -> None:
    """The documents name these numbers: a client of the mixed split, five epochs."""
    counts, target = np.array([480.0, 480.0, *[5.0] * 8]), np.full(10, 0.1)
    found = CappedRepeats(repeats=10.0).own_probabilities(Known(counts, target, 1, 9, 5.0))
    uses = found * counts.sum() * 5 / counts
    assert round(uses[-1]) == 36 and round(target[-1] * counts.sum() * 5 / 5) == 100


def test_capped_is_shrunk_with_a_prior_that_follows_from_the_draws() -> None:
    counts, target = np.array([300.0, 50.0, 5.0]), np.full(3, 1 / 3)
    prior = 710 / 3 / 10.0
    found = CappedRepeats(repeats=10.0).own_probabilities(Known(counts, target, 1, 9, 2.0))
    np.testing.assert_allclose(found, ShrunkTarget(prior_samples=prior).class_probabilities(counts, target))


def test_capped_goes_from_the_target_to_the_local_mix_as_training_gets_longer() -> None:
    rule, wanted, mix = CappedRepeats(), target_on_support(COUNTED, TARGET), COUNTED / COUNTED.sum()
    np.testing.assert_allclose(capped(rule, passes=1e-9), wanted, atol=1e-9)
    np.testing.assert_allclose(capped(rule, passes=1e9), mix, atol=1e-6)
    rare = [capped(rule, passes=passes)[2] for passes in (0.1, 1.0, 10.0, 100.0)]
    assert (np.diff(rare) < 0).all()


def test_a_federation_gives_capped_clients_the_length_of_training() -> None:
    parts: dict[str, Any] = {"target": {"kind": "uniform"}}
    short, long = (
        federate(settings_of("capped", training={"rounds": 1, "local_epochs": 4, "sampling_ratio": ratio}, **parts))[1]
        for ratio in (0.25, 1.0)
    )
    for reports, passes in ((short, 1.0), (long, 4.0)):
        for k, counts in enumerate(COUNTS):
            known = Known(np.array(counts, dtype=float), np.full(4, 0.25), 1, 1, passes)
            np.testing.assert_allclose(reports[0].probabilities[k], CappedRepeats().own_probabilities(known))


def test_without_skew_a_capped_client_sees_every_sample_once_per_epoch_as_in_fedavg() -> None:
    labels = np.repeat(np.arange(4), [40, 10, 20, 30])
    counts = np.bincount(labels).astype(float)
    q = CappedRepeats().own_probabilities(Known(counts, counts / 100, 1, 1, 3.0))
    data = Dataset(torch.zeros(100, 2), torch.from_numpy(labels), 4)
    draws = CappedRepeats().draws(LocalData(nn.Linear(2, 4), data, q, 100, 3, Stream(0, 1, 0)))
    epochs = [draws.indices(epoch) for epoch in range(3)]
    for indices in epochs:
        np.testing.assert_array_equal(np.sort(indices), np.arange(100))
    assert not np.array_equal(epochs[0], epochs[1])
    independent = CappedRepeats(evenly=False)
    drawn = independent.draws(LocalData(nn.Linear(2, 4), data, q, 100, 3, Stream(0, 1, 0))).indices(0)
    assert len(np.unique(drawn)) < 100


# ---------------------------------------------------------------- decaying


def test_a_decaying_temperature_goes_from_balance_to_the_local_mix_in_equal_steps() -> None:
    rule = Tempered(temperature=1.0, final_temperature=0.0)
    for round, temperature in ((1, 1.0), (2, 0.75), (3, 0.5), (4, 0.25), (5, 0.0)):
        expected = np.where(COUNTED > 0, np.maximum(COUNTED, 1) ** (1 - temperature), 0)
        found = rule.own_probabilities(Known(COUNTED, TARGET, round, 5, 2.0))
        np.testing.assert_allclose(found, expected / expected.sum())
    np.testing.assert_allclose(rule.own_probabilities(Known(COUNTED, TARGET, 1, 1, 2.0)), np.array([1, 1, 1, 0]) / 3)


def test_a_temperature_without_an_end_is_the_same_in_all_rounds() -> None:
    rule, ends_where_it_began = Tempered(temperature=0.3), Tempered(temperature=0.3, final_temperature=0.3)
    for round in (1, 4, 9):
        known = Known(COUNTED, TARGET, round, 9, 2.0)
        np.testing.assert_array_equal(rule.own_probabilities(known), rule.class_probabilities(COUNTED, TARGET))
        np.testing.assert_array_equal(rule.own_probabilities(known), ends_where_it_began.own_probabilities(known))


def test_a_federation_draws_by_the_temperature_of_the_round_also_for_clients_that_were_absent() -> None:
    _, reports = federate(settings_of("decaying", training={"rounds": 3, "participation": 0.34}))
    for report, temperature in zip(reports, (1.0, 0.5, 0.0), strict=True):
        for k, counts in enumerate(COUNTS):
            expected = np.array(counts) ** (1 - temperature)
            np.testing.assert_allclose(report.probabilities[k], expected / expected.sum())


# ---------------------------------------------------------------- ISFL with a strength

SHARES, LIPSCHITZ = COUNTED / COUNTED.sum(), np.array([3.0, 1.0, 2.0, 5.0])


@pytest.mark.parametrize("solver", ["paper", "exact"])
def test_strength_one_is_isfl_to_the_last_bit_and_zero_the_target(solver: Any) -> None:
    def q(**options: Any) -> Array:
        return sampling_probabilities(TARGET, SHARES, LIPSCHITZ, solver=solver, target_floor=0.3, **options)

    np.testing.assert_array_equal(q(strength=1.0), q())
    floors = lowest_probabilities(TARGET[None], SHARES[None], 0.05, 0.3)[0]
    target = np.array([1.0, 2.0, 3.0, 0.0]) / 6
    assert (target >= floors).all()
    np.testing.assert_allclose(q(strength=0.0), target, atol=1e-15)
    np.testing.assert_allclose(q(strength=0.25), 0.75 * target + 0.25 * q(), atol=1e-15)


def test_strength_on_full_support_is_the_papers_formula() -> None:
    """`q = p + s Gamma alpha`, and the opposite way for a negative s as long as no floor is met."""
    p, local, lipschitz = np.array([0.4, 0.3, 0.2, 0.1]), np.full(4, 0.25), np.array([1.0, 1.2, 1.1, 1.4])
    d = 1 - 4 * lipschitz**2 / (lipschitz**2).sum()
    alpha = d / np.linalg.norm(d)
    gamma = min((p[j] - 0.05 * 0.25) / -alpha[j] for j in range(4) if alpha[j] < 0)
    for s in (1.0, 0.6, 0.0, -0.3, -1.0):
        found = sampling_probabilities(p, local, lipschitz, floor=0.05, strength=s)
        np.testing.assert_allclose(found, p + s * gamma * alpha, atol=1e-14)


@pytest.mark.parametrize("solver", ["paper", "exact"])
@settings(max_examples=200, deadline=None)
@given(client=any_client(), strength=st.floats(-1, 1), data=st.data())
def test_any_strength_is_feasible(solver: Any, client: tuple[Array, Array], strength: float, data: Any) -> None:
    counts, target = client
    value = st.sampled_from([0.0, 1e-3, 1.0, 7.0, float("nan")])
    lipschitz = np.array(data.draw(st.lists(value, min_size=len(counts), max_size=len(counts))))
    local = counts / counts.sum()
    q = sampling_probabilities(target, local, lipschitz, solver=solver, floor=0.1, target_floor=0.4, strength=strength)
    assert_drawable(q, counts)
    assert (q >= lowest_probabilities(target[None], local[None], 0.1, 0.4)[0] - 1e-14).all()


def test_a_federation_at_strength_zero_draws_by_the_target_from_the_second_round_on() -> None:
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    target = {"kind": "given", "shares": shares.tolist()}
    for where in ("server", "client"):
        scheme = {"name": "isfl", "sampling": {"strength": 0.0, "floor": 0.0, "where": where}}
        _, reports = federate(settings_of(scheme, target=target))
        for q in reports[1].probabilities.values():
            np.testing.assert_allclose(q, shares, atol=1e-14)


def test_strength_is_checked_in_the_configuration_and_in_the_function() -> None:
    with pytest.raises(UserError, match=r"scheme\.sampling\.strength"):
        parse_config('scheme = {name = "isfl", sampling = {strength = 1.5}}', "c.toml")
    with pytest.raises(ValueError, match="strength is -2"):
        sampling_probabilities(TARGET, SHARES, LIPSCHITZ, strength=-2)
    assert ImportanceSampling().strength == 1.0
