"""The rule `bias-variance` in a federation: what the server measures and sends, and what clients draw with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from isfl.engines import LocalEngine
from isfl.federation.sampling_rules import Known
from isfl.federation.sampling_rules.bias_variance import BiasVariance
from isfl.federation.values import ClientUpdate, TrainTask, Weights, payload_bytes
from isfl.smoothness import gradient_moments
from isfl.theory.arrays import Array
from isfl.theory.bias_variance import Moments, bias_variance_probabilities
from tests.clients import any_client, assert_drawable
from tests.worlds import COUNTS, blobs, engine_of, federate, network, settings_of


class Watched(LocalEngine):
    """Notes what clients are sent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tasks: list[TrainTask] = []

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate]:
        self.tasks.extend(tasks)
        return super().train(tasks)

    def renew(self, tasks: Any) -> Any:
        raise AssertionError("no second message in a round")


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_clients_draw_with_the_smallest_error_at_the_model_they_start_from(weight: float) -> None:
    scheme = {"name": "bias-variance", "sampling": {"weight": weight}}
    settings = settings_of(scheme, target={"kind": "uniform"}, training={"rounds": 2})
    engine = engine_of(settings, kind=Watched)
    assert isinstance(engine, Watched)
    _, reports = federate(settings, engine)
    for task in engine.tasks:
        moments = gradient_moments(loaded(task.model), *blobs((8, 8, 8, 8), seed=7).everything(), 4).moments
        assert moments is not None and task.moments is not None
        np.testing.assert_array_equal(task.moments, moments.packed())
        counts = np.array(COUNTS[task.client], dtype=np.float64)
        expected = bias_variance_probabilities(np.full(4, 0.25), counts, moments, weight=weight)
        np.testing.assert_array_equal(reports[task.round - 1].probabilities[task.client], expected)
    first, second = (engine.tasks[i].moments for i in (0, 3))
    assert first is not None and second is not None and not np.array_equal(first, second)


def loaded(weights: Weights) -> nn.Module:
    model = network()
    model.load_state_dict(weights)
    return model


def test_moments_are_c_times_c_plus_one_numbers_down_and_nothing_up() -> None:
    settings = settings_of("bias-variance", target={"kind": "uniform"}, training={"rounds": 2})
    engine = engine_of(settings, kind=Watched)
    model = payload_bytes(engine.server.initial_model())
    state, reports = federate(settings, engine)
    assert state.counts is None and state.probabilities is None
    for report in reports:
        assert report.bytes_down == 3 * (model + 4 * 8 + 4 * 5 * 8) and report.bytes_up == 3 * model


def test_without_finite_gradients_clients_draw_by_the_target() -> None:
    settings = settings_of("bias-variance", target={"kind": "uniform"}, training={"rounds": 1})
    engine = engine_of(settings, counts=((30, 6, 4, 0),))
    engine.server.public = blobs((1, 1, 1, 1), seed=7)  # one sample per class: no variance can be known
    _, (report,) = federate(settings, engine)
    np.testing.assert_allclose(report.probabilities[0], np.array([1, 1, 1, 0]) / 3)


def test_other_schemes_measure_no_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isfl.engines.server.gradient_moments", None)
    federate(settings_of("isfl", training={"rounds": 1}))


@settings(max_examples=50, deadline=None)
@given(client=any_client(), weight=st.sampled_from([0.0, 1.0, 100.0]), seed=st.integers(0, 5))
def test_bias_variance_draws_only_what_is_held(client: tuple[Array, Array], weight: float, seed: int) -> None:
    counts, target = client
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(len(counts), 3))
    moments = Moments(gradients @ gradients.T, rng.lognormal(size=len(counts)))
    q = BiasVariance(weight=weight).own_probabilities(Known(counts, target, 1, 5, 2.0, moments=moments))
    assert_drawable(q, counts)
