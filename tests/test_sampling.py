"""Draws follow the probabilities they were given."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from isfl import ClassSampler
from isfl.data import Dataset
from isfl.federation.sampling_rules import LocalData, SamplingRule, Stream
from isfl.federation.sampling_rules import gradient_norm as gradient_norm_module
from isfl.federation.scheme import Scheme
from isfl.federation.training import epoch_size
from isfl.sampling import Indices, draw_by_class, draw_evenly
from isfl.theory.arrays import Array

LABELS = np.repeat([0, 1, 3], [50, 7, 20])
"""No sample of class 2."""
Q = np.array([0.1, 0.6, 0.0, 0.3])
MANY = 40_000
UNLIKELY = 1e-4
"""Draws are a fixed function of the seed: these p-values never change."""


def rule_of(name: str) -> SamplingRule:
    return Scheme.model_validate(name).sampling


def drawn_by(rule: SamplingRule, q: Array, size: int, stream: Stream, epoch: int = 0) -> Indices:
    """Samples of one epoch of a client with `LABELS`."""
    data = Dataset(torch.zeros(len(LABELS), 2), torch.from_numpy(LABELS), 4)
    return rule.draws(LocalData(nn.Linear(2, 4), data, q, size, 3, stream)).indices(epoch)


def test_class_frequencies_match_the_probabilities() -> None:
    drawn = LABELS[list(ClassSampler(LABELS, Q, MANY, seed=0))]
    counts = np.bincount(drawn, minlength=4)
    assert counts[2] == 0
    assert chisquare(counts[[0, 1, 3]], MANY * Q[[0, 1, 3]]).pvalue > UNLIKELY


def test_draws_inside_a_class_are_uniform() -> None:
    drawn = np.array(list(ClassSampler(LABELS, Q, MANY, seed=0)))
    for label in (0, 1, 3):
        inside = np.bincount(drawn, minlength=len(LABELS))[label == LABELS]
        assert chisquare(inside).pvalue > UNLIKELY


@pytest.mark.parametrize("scheme", ["uniform-is", "pj-is", "tempered", "calibrated", "isfl"])
def test_each_scheme_draws_by_its_own_probabilities(scheme: str) -> None:
    rule, counts = rule_of(scheme), np.array([50.0, 7.0, 0.0, 20.0])
    target = np.array([0.4, 0.3, 0.2, 0.1])
    expected = {
        "uniform-is": np.array([1, 1, 0, 1]) / 3,
        "pj-is": np.array([0.4, 0.3, 0, 0.1]) / 0.8,
        "tempered": np.array([50**0.25, 7**0.25, 0, 20**0.25]),
        "calibrated": np.array([50**0.5, 7**0.5, 0, 20**0.5]),
        "isfl": counts / 77,
    }[scheme]
    q = rule.class_probabilities(counts, target)
    np.testing.assert_allclose(q, expected / expected.sum())
    drawn = LABELS[drawn_by(rule, q, MANY, Stream(0, 1, 0))]
    seen = np.bincount(drawn, minlength=4)[[0, 1, 3]]
    assert chisquare(seen, MANY * q[[0, 1, 3]]).pvalue > UNLIKELY


def test_fedavg_visits_every_sample_once_an_epoch_in_another_order_each_time() -> None:
    first, second = (
        drawn_by(rule_of("fedavg"), np.full(4, 0.25), len(LABELS), Stream(0, 1, 0), epoch) for epoch in (0, 1)
    )
    np.testing.assert_array_equal(np.sort(first), np.arange(len(LABELS)))
    assert not np.array_equal(first, second)


def test_isfedavg_draws_samples_in_proportion_to_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.arange(1.0, len(LABELS) + 1)
    monkeypatch.setattr(gradient_norm_module, "gradient_norm_weights", lambda model, data: weights)
    drawn = drawn_by(rule_of("isfedavg"), Q, MANY, Stream(0, 2, 0))
    assert chisquare(np.bincount(drawn, minlength=len(LABELS)), MANY * weights / weights.sum()).pvalue > UNLIKELY


def test_draws_are_a_function_of_seed_round_client_and_epoch() -> None:
    def draw(seed: int = 0, round: int = 1, client: int = 0, epoch: int = 0) -> list[int]:
        return drawn_by(rule_of("uniform-is"), Q, 50, Stream(seed, round, client), epoch).tolist()

    assert draw() == draw()
    assert len({tuple(draw(**change)) for change in ({}, {"seed": 1}, {"round": 2}, {"client": 1}, {"epoch": 1})}) == 5


def test_an_epoch_has_the_floor_of_the_sampling_ratio_and_never_nothing() -> None:
    assert [epoch_size(n, ratio) for n, ratio in ((1000, 1.0), (999, 0.1), (3, 0.1))] == [1000, 99, 1]


def test_no_epochs_or_epochs_without_draws_are_empty() -> None:
    generator = np.random.default_rng(0)
    assert draw_evenly(LABELS, Q, 5, 0, generator) == []
    for drawn in (*draw_evenly(LABELS, Q, 0, 2, generator), draw_by_class(LABELS, Q, 0, generator)):
        assert drawn.shape == (0,) and LABELS[drawn].size == 0, "they are indices"


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 200), epochs=st.integers(1, 4), seed=st.integers(0, 99))
def test_even_draws_use_no_sample_again_before_all_of_its_class(count: int, epochs: int, seed: int) -> None:
    drawn = draw_evenly(LABELS, Q, count, epochs, np.random.default_rng(seed))
    assert [len(epoch) for epoch in drawn] == [count] * epochs
    for epoch in drawn:
        per_class = np.bincount(LABELS[epoch], minlength=4)
        assert (np.abs(per_class - count * Q) < 1 + 1e-9).all() and per_class[2] == 0
    used = np.bincount(np.concatenate(drawn), minlength=len(LABELS))
    for label in (0, 1, 3):
        assert np.ptp(used[label == LABELS]) <= 1


def test_even_draws_follow_the_probabilities_in_expectation() -> None:
    """13 draws of 1.3, 7.8 and 3.9 places: the roundings average out, and so does who is drawn inside a class."""
    repeats = 4000
    used = np.zeros(len(LABELS))
    for seed in range(repeats):
        [epoch] = draw_evenly(LABELS, Q, 13, 1, np.random.default_rng(seed))
        used += np.bincount(epoch, minlength=len(LABELS))
    for label in (0, 1, 3):
        assert chisquare(used[label == LABELS]).pvalue > UNLIKELY
    np.testing.assert_allclose(np.bincount(LABELS, used, minlength=4) / (repeats * 13), Q, atol=0.002)


def test_even_draws_by_the_mix_of_the_labels_are_permutations() -> None:
    mix = np.bincount(LABELS, minlength=4) / len(LABELS)
    first, second = draw_evenly(LABELS, mix, len(LABELS), 2, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(first), np.arange(len(LABELS)))
    np.testing.assert_array_equal(np.sort(second), np.arange(len(LABELS)))
    assert not np.array_equal(first, second)


def test_even_draws_mix_the_classes_inside_an_epoch() -> None:
    [drawn] = draw_evenly(LABELS, Q, 1000, 1, np.random.default_rng(0))
    halves = [np.bincount(LABELS[half], minlength=4)[[0, 1, 3]] for half in np.split(drawn, 2)]
    assert all(chisquare(half, 500 * Q[[0, 1, 3]]).pvalue > UNLIKELY for half in halves)


def test_even_draws_need_samples_of_every_class_they_are_to_draw() -> None:
    with pytest.raises(ValueError, match=r"probabilities\[2\] is 0.5: there is no sample"):
        draw_evenly(LABELS, [0.5, 0.0, 0.5, 0.0], 10, 1, np.random.default_rng(0))


def test_the_sampler_works_in_a_data_loader_and_every_pass_is_a_new_epoch() -> None:
    sampler = ClassSampler(torch.from_numpy(LABELS), Q, num_samples=100, seed=3)
    loader = DataLoader(TensorDataset(torch.arange(len(LABELS))), batch_size=32, sampler=sampler)
    passes = [torch.cat([batch for (batch,) in loader]).tolist() for _ in range(2)]
    assert len(loader) == 4
    assert passes[0] != passes[1]
    sampler.set_epoch(0)
    assert list(sampler) == passes[0]


def test_seeds_of_any_size_and_epochs_do_not_coincide() -> None:
    def first(seed: int, epoch: int) -> list[int]:
        sampler = ClassSampler(LABELS, Q, 50, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    draws = [first(seed, epoch) for seed in (7, 8, 7 + (3 << 32)) for epoch in (0, 3)]
    assert len({tuple(d) for d in draws}) == len(draws)


def test_probabilities_can_be_renewed_between_epochs() -> None:
    sampler = ClassSampler(LABELS, Q, num_samples=100, seed=3)
    sampler.probabilities = np.array([0.0, 1.0, 0.0, 0.0])
    assert set(LABELS[list(sampler)]) == {1}
    with pytest.raises(ValueError, match=r"probabilities\[2\] is 0.5"):
        sampler.probabilities = np.array([0.0, 0.5, 0.5, 0.0])


@pytest.mark.parametrize(
    ("labels", "probabilities", "samples", "message"),
    [
        ([0, 1], [0.5, 0.4, 0.1], 5, r"probabilities\[2\] is 0.1: there is no sample"),
        ([0, 5], [0.5, 0.5], 5, r"labels\[1\] is 5"),
        ([0, 1], [0.5, 0.4], 5, r"sums to 0.9"),
        ([0, 1], [0.5, float("nan")], 5, r"probabilities\[1\] is nan"),
        ([0, 1], [0.5, 0.5], 0, "num_samples is 0"),
        ([0, 1], [[1.0, 0.0], [0.0, 1.0]], 5, r"for one client, found \(2, 2\)"),
        ([0.9, 1.9], [0.5, 0.5], 5, "labels must be a vector of whole numbers"),
    ],
)
def test_wrong_input_is_named(labels: list[int], probabilities: list[float], samples: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassSampler(labels, probabilities, samples, seed=0)
