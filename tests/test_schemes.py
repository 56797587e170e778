"""Schemes: which parts combine, what a scheme reduces to, and which probabilities it draws with."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from isfl.engines.server import ServerCompute
from isfl.federation import SHORTHANDS, Settings
from isfl.federation.sampling_rules import base as sampling_base
from tests.worlds import (
    AGGREGATIONS,
    COUNTS,
    engine_of,
    federate,
    last_scores,
    same_bits,
    settings_of,
)

SAMPLINGS = ["shuffle", "uniform", "target", "tempered", "shrunk", "capped", "bias-variance"]
SAMPLINGS += ["gradient-norm", "isfl"]
OBJECTIVES = [{"kind": k, "calibrate": c} for k in ("cross-entropy", "fedprox", "moon") for c in (False, True)]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: f"{o['kind']}{'+cal' if o['calibrate'] else ''}")
def test_every_sampling_composes_with_every_objective_and_aggregation(sampling: str, objective: dict[str, Any]) -> None:
    finals = []
    for aggregation in AGGREGATIONS:
        scheme = {"sampling": {"rule": sampling}, "objective": objective, "aggregation": {"rule": aggregation}}
        state, reports = federate(settings_of(scheme, training={"rounds": 2}))
        assert all(torch.isfinite(value).all() for value in state.model.values())
        assert not any(report.refused for report in reports)
        finals.append(state)
    # Trimming a tenth of three clients trims none: that rule equals the mean, the others all differ.
    assert not any(same_bits(a, b) for a, b in itertools.combinations(finals[:4], 2))


@pytest.mark.parametrize("scheme", [name for name in SHORTHANDS if name not in ("isfl", "centralized")])
def test_every_scheme_learns(scheme: str) -> None:
    _, reports = federate(settings_of(scheme, training={"rounds": 15, "optimizer": {"kind": "adam", "lr": 0.01}}))
    assert last_scores(reports).total.accuracy >= 0.8


def test_isfl_can_starve_a_class_and_a_target_floor_feeds_it() -> None:
    """A known weakness: a class that is hard everywhere has a large L everywhere, and is drawn least."""
    recall = []
    for target_floor in (0.0, 0.6):
        scheme = {"name": "isfl", "sampling": {"target_floor": target_floor}}
        _, reports = federate(settings_of(scheme, training={"rounds": 15, "optimizer": {"kind": "adam", "lr": 0.01}}))
        recall.append(last_scores(reports).recall)
    assert recall[0][:3].min() > 0.8 and recall[0][3] < 0.2
    assert recall[1].min() > 0.6


@pytest.mark.parametrize("kind", ["fedprox", "moon"])
def test_a_regulariser_of_weight_zero_is_fedavg_to_the_last_bit(kind: str) -> None:
    plain, _ = federate(settings_of("fedavg"))
    zero, _ = federate(settings_of({"name": kind, "objective": {"kind": kind, "mu": 0.0}}))
    weighted, _ = federate(settings_of({"name": kind, "objective": {"kind": kind, "mu": 1.0}}))
    assert same_bits(plain, zero)
    assert not same_bits(plain, weighted)


def test_fedprox_stays_closer_to_the_global_model() -> None:
    def distance(mu: float) -> float:
        settings = settings_of({"name": "fedprox", "objective": {"mu": mu}}, training={"rounds": 1})
        engine = engine_of(settings)
        before = engine.server.initial_model()
        after, _ = federate(settings, engine)
        return sum(float(((after.model[n] - before[n]) ** 2).sum()) for n in before) ** 0.5

    assert distance(100.0) < 0.5 * distance(0.0)


def test_uniform_is_on_uniform_data_with_a_shuffled_sampler_is_fedavg(monkeypatch: pytest.MonkeyPatch) -> None:
    even = [(10, 10, 10, 10)] * 3
    plain, _ = federate(settings_of("fedavg"), counts=even)
    monkeypatch.setattr(
        sampling_base, "draw_by_class", lambda labels, q, size, rng: rng.permutation(len(labels))[:size]
    )
    uniform, reports = federate(settings_of("uniform-is"), counts=even)
    np.testing.assert_allclose(reports[0].probabilities[0], 0.25)
    assert same_bits(plain, uniform)


def test_calibration_vanishes_where_the_client_draws_by_the_target() -> None:
    """log(q / p) = 0: p_j-IS with calibration is p_j-IS."""
    plain, _ = federate(settings_of("pj-is"))
    calibrated, _ = federate(settings_of({"name": "pj-is", "objective": {"calibrate": True}}))
    assert same_bits(plain, calibrated)


def test_the_first_round_draws_the_local_mix_or_the_target() -> None:
    for first_round, expected in (("local", np.array(COUNTS[0]) / 40), ("target", np.array([0.1, 0.2, 0.3, 0.4]))):
        settings = settings_of(
            {"name": "isfl", "sampling": {"first_round": first_round}},
            target={"kind": "given", "shares": [0.1, 0.2, 0.3, 0.4]},
        )
        _, reports = federate(settings)
        np.testing.assert_allclose(reports[0].probabilities[0], expected)
        assert not np.allclose(reports[1].probabilities[0], expected, atol=1e-4)


def test_the_reference_model_before_or_after_the_aggregation(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, torch.Tensor]] = []
    real = ServerCompute.lipschitz

    def watching(server: ServerCompute, local: Any, reference: Any) -> Any:
        asked.append(reference)
        return real(server, local, reference)

    monkeypatch.setattr(ServerCompute, "lipschitz", watching)
    for reference in ("before", "after"):
        settings = settings_of({"name": "isfl", "sampling": {"reference": reference}}, training={"rounds": 1})
        engine = engine_of(settings)
        state, _ = federate(settings, engine)
        expected = engine.server.initial_model() if reference == "before" else state.model
        assert all(torch.equal(asked[-1][name], expected[name]) for name in expected)


def test_a_target_per_client_reaches_its_client() -> None:
    rows = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]]
    _, reports = federate(settings_of("pj-is", target={"kind": "given", "shares": rows}, training={"rounds": 1}))
    for k, row in enumerate(rows):
        np.testing.assert_allclose(reports[0].probabilities[k], row)


def test_isfedavg_prefers_samples_with_a_large_gradient() -> None:
    _, reports = federate(settings_of("isfedavg"))
    np.testing.assert_allclose(reports[0].probabilities[0], np.array(COUNTS[0]) / 40)
    q = reports[1].probabilities[0]
    assert q.sum() == pytest.approx(1.0)
    assert q[0] < COUNTS[0][0] / 40  # its commonest class is the one it has learned best


def test_contradictory_settings_are_refused() -> None:
    for parts, message in (
        ({"scheme": {"name": "isfl", "sampling": {"where": "client"}}}, "keeps class counts private"),
        ({"target": {"kind": "noised", "epsilon": 1.0}}, "hides class counts"),
        (
            {"scheme": "fedavg", "target": {"kind": "noised", "epsilon": 1.0}, "diagnostics": {"lipschitz": True}},
            "needs class counts at the server",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            Settings.model_validate({"scheme": "isfl", **parts})
