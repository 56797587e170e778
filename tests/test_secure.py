"""Secure aggregation: the sum is exact, and what is in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isfl.engines import LocalEngine
from isfl.federation import run_round, start
from isfl.federation.scheme import SHORTHANDS
from isfl.federation.secure.quantise import restored
from isfl.federation.values import ClientMemory, RenewalReport, RoundSecret
from tests.masking import (
    COUNTS,
    PRIVATE_ISFL,
    SIZES,
    changing,
    one_round,
    plain_updates,
    quantised_sum,
    secured,
)
from tests.worlds import engine_of, federate, network, same_bits

REGULAR = {"neighbours": 2, "threshold": 0.6}


@pytest.mark.parametrize("weights", ["size", "client"])
@pytest.mark.parametrize("secure", [{}, REGULAR, {"bits": 16, "range": 1.0}], ids=["complete", "regular", "coarse"])
def test_the_sum_is_that_of_the_quantised_updates_and_the_mean_is_within_its_error(
    weights: str, secure: dict[str, Any]
) -> None:
    settings = secured({"name": "fedavg", "aggregation": {"weights": weights}}, secure)
    before, after, report = one_round(settings, changing(settings))
    updates = plain_updates(settings)
    raw = np.array(SIZES if weights == "size" else [1] * 5) / (max(SIZES) if weights == "size" else 1)
    total = quantised_sum(settings, updates, before.model, raw.tolist(), max(SIZES))
    assert settings.secure is not None
    summed = restored(total, before.model, raw.sum(), sum(SIZES) / max(SIZES), settings.secure)
    assert report.refused == {} and report.train_loss == summed.train_loss
    error = settings.secure.step / 2 * len(raw) / raw.sum()
    for name, value in after.model.items():
        assert torch.equal(value, summed.model[name])
        mean = sum(w * u.model[name].double() for w, u in zip(raw / raw.sum(), updates, strict=True))
        assert float((value.double() - mean).abs().max()) <= error + 1e-7  # float32 rounds once more
    losses = [update.train_loss for update in updates]
    assert report.train_loss == pytest.approx(np.average(np.array(losses, float), weights=SIZES), abs=0.01)


@pytest.mark.parametrize("scheme", ["fedavg", PRIVATE_ISFL], ids=["fedavg", "isfl"])
def test_results_depend_neither_on_the_masks_nor_on_the_number_of_workers(scheme: Any) -> None:
    state, _ = federate(secured(scheme), counts=COUNTS)
    for secure, workers in (({}, 2), (REGULAR, 1), ({"threshold": 1.0}, 1)):
        settings = secured(scheme, secure)
        with engine_of(settings, COUNTS, workers=workers) as engine:
            assert same_bits(state, federate(settings, engine)[0])


SCHEMES = [
    *(SHORTHANDS.keys() - {"isfl", "centralized"}),
    *({"name": "isfl", **PRIVATE_ISFL, "aggregation": {"rule": rule}} for rule in ("mean", "momentum", "adam")),
]


@pytest.mark.parametrize("scheme", sorted(SCHEMES, key=str), ids=str)
def test_every_scheme_that_needs_no_single_model_stays_close_to_its_plain_result(scheme: Any) -> None:
    settings = secured(scheme, training={"rounds": 2})
    masked, reports = federate(settings, counts=COUNTS)
    plain, expected = federate(settings.model_copy(update={"secure": None}), counts=COUNTS)
    assert all(report.refused == {} for report in reports)
    for ours, theirs in zip(reports, expected, strict=True):
        assert ours.train_loss == pytest.approx(theirs.train_loss, abs=1e-3)
    for name, value in plain.model.items():
        torch.testing.assert_close(masked.model[name], value, atol=1e-4, rtol=0)


# ---------------------------------------------------------------- values


def test_a_client_whose_model_diverges_withdraws_and_the_others_are_aggregated() -> None:
    settings = secured()
    engine = changing(settings)
    inputs = engine.clients[3].inputs
    assert isinstance(inputs, torch.Tensor)
    inputs[:] = float("nan")
    before, after, report = one_round(settings, engine)
    assert report.refused == {3: "withdrew its update, which is not finite"}
    assert all(torch.isfinite(value).all() for value in after.model.values()) and not same_bits(before, after)


def test_values_beyond_the_range_are_clipped_counted_and_reported() -> None:
    settings = secured(secure={"range": 1e-3})
    engine = changing(settings)
    with pytest.warns(UserWarning, match=r"secure\.range = 0\.001 clips updates"):
        before, after, report = one_round(settings, engine)
    beyond = [
        int(((u.model[name].double() - before.model[name].double()).abs() > 1e-3).sum())
        for u in plain_updates(settings)
        for name in before.model
    ]
    assert report.clipped_values == sum(beyond) > 0
    assert all(float((after.model[n] - before.model[n]).abs().max()) <= 1e-3 + 1e-7 for n in before.model)
    assert one_round(secured(), changing(secured()))[2].clipped_values == 0


def test_counters_stay_at_the_server_and_statistics_are_averaged() -> None:
    settings = secured()
    model = network(batchnorm=True)
    before, after, _ = one_round(settings, changing(settings, model=model))
    assert int(after.model["1.num_batches_tracked"]) == int(before.model["1.num_batches_tracked"]) == 0
    plain, _ = federate(secured(training={"rounds": 1}).model_copy(update={"secure": None}), counts=COUNTS, model=model)
    torch.testing.assert_close(after.model["1.running_var"], plain.model["1.running_var"], atol=1e-6, rtol=0)


def test_statistics_that_are_kept_local_are_not_in_the_sum() -> None:
    settings = secured(PRIVATE_ISFL, training={"batchnorm": "local"})
    engine = changing(settings, model=network(batchnorm=True))
    _, _, report = one_round(settings, engine)
    (length,) = {len(answer.model["masked"]) for phase, answer in engine.answers if phase == "train"}
    parameters = sum(p.numel() for p in network(batchnorm=True).parameters())
    assert report.refused == {} and length == parameters + 2


def test_noise_of_clients_composes_with_masks_and_no_loss_is_sent() -> None:
    """Also where clients measure Lipschitz values, which noise alone would not protect."""
    scheme = {**PRIVATE_ISFL, "aggregation": {"weights": "client"}}
    settings = secured(scheme, privacy={"clip": 1.0, "noise": 1.0, "at": "client"})
    before, after, report = one_round(settings, changing(settings))
    updates = plain_updates(settings)
    assert report.train_loss is None and report.epsilon and report.refused == {}
    assert all(update.train_loss is None for update in updates)
    for name, value in after.model.items():
        mean = sum(update.model[name].double() for update in updates) / 5
        assert float((value.double() - mean).abs().max()) < 1e-6 < float((value - before.model[name]).abs().max())


def test_renewal_reports_and_metrics_hold_nothing_of_single_clients() -> None:
    settings = secured(PRIVATE_ISFL)
    reports_sent: list[RenewalReport] = []

    class Renewing(LocalEngine):
        def renew(self, tasks: Any) -> list[RenewalReport]:
            answers = list(super().renew(tasks))
            reports_sent.extend(answers)
            return answers

    engine = engine_of(settings, COUNTS, kind=Renewing)
    state, reports = federate(settings, engine)
    assert len(reports_sent) == 15
    assert all(report.lipschitz is None and report.dropped == 0 for report in reports_sent)
    assert state.lipschitz is None and state.counts is None and state.probabilities is None
    assert all(report.update_norm == report.client_drift == report.lipschitz == {} for report in reports)
    first, last = (np.array([report.probabilities[k] for k in range(5)]) for report in (reports[0], reports[-1]))
    assert not np.array_equal(first, last), "clients renew their probabilities all the same"


@pytest.mark.parametrize(
    ("settings", "values", "reason"),
    [
        (secured(PRIVATE_ISFL), np.ones(4), "renewal: reports Lipschitz values that it was not asked for"),
        (secured(PRIVATE_ISFL).model_copy(update={"secure": None}), None, "renewal: reports no Lipschitz values"),
    ],
    ids=["secure", "plain"],
)
def test_a_renewal_report_with_other_values_than_asked_for_is_refused(settings: Any, values: Any, reason: str) -> None:
    class Renewing(LocalEngine):
        def renew(self, tasks: Any) -> list[RenewalReport]:
            return [replace(r, lipschitz=values) if r.client == 1 else r for r in super().renew(tasks)]

    assert one_round(settings, engine_of(settings, COUNTS, kind=Renewing))[2].refused == {1: reason}


def test_a_client_forgets_its_secret_when_it_has_answered_the_last_phase(tmp_path: Path) -> None:
    settings = secured()
    engine = changing(settings, directory=tmp_path)
    state = start(settings, engine)
    assert engine.client_states.get(0, ClientMemory()) == ClientMemory()
    run_round(state, settings, engine)
    assert all(stored.small.secret == RoundSecret() for stored in engine.client_states.values())
