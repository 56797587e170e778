"""The settings of secure aggregation: what they refuse, what they hide, and a run with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from isfl.errors import UserError
from isfl.experiment.run import resume, run
from isfl.federation import start
from isfl.federation.secure.settings import SecureAggregation, check_participants
from tests.masking import COUNTS, PRIVATE_ISFL, secured
from tests.refusals import refusal
from tests.resumable import config, outcome, stop_after
from tests.worlds import engine_of


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"scheme": "isfl"}, r"lipschitz_at = 'server' compares single local models.*lipschitz_at = 'client'"),
        ({"scheme": {"name": "isfl", "sampling": {"where": "client"}}}, "lipschitz_at = 'server' compares"),
        ({"target": {"kind": "global"}}, r"target\.kind = 'global' needs the class counts.*use 'uniform'"),
        ({"target": {"kind": "local"}}, r"target\.kind = 'local' needs the class counts"),
        ({"scheme": {"aggregation": {"rule": "median"}}}, r"rule = 'median' looks at single updates.*use 'mean'"),
        ({"scheme": {"aggregation": {"rule": "trimmed-mean"}}}, "rule = 'trimmed-mean' looks at single updates"),
        ({"scheme": {"aggregation": {"rule": "clipped"}}}, "rule = 'clipped' looks at single updates"),
        ({"scheme": {"aggregation": {"rule": "multi-krum"}}}, "rule = 'multi-krum' looks at single updates"),
        ({"scheme": {"aggregation": {"rule": "public-loss"}}}, "rule = 'public-loss' looks at single updates"),
        ({"diagnostics": {"lipschitz": True}}, r"diagnostics\.lipschitz = true compares.*leave it out"),
        ({"diagnostics": {"bound": True}}, r"diagnostics\.bound = true looks at"),
        ({"attack": {"kind": "sign-flip"}}, "attack.kind = 'sign-flip' looks at single updates.*'label-flip'"),
        ({"attack": {"kind": "scale"}}, "attack.kind = 'scale' looks at"),
        ({"attack": {"kind": "collude"}}, "attack.kind = 'collude' looks at"),
        ({"attack": {"kind": "replace"}}, "attack.kind = 'replace' looks at"),
        (
            {"scheme": {"aggregation": {"weights": "client"}}, "privacy": {"clip": 1.0, "noise": 1.0}},
            r"privacy\.at = 'server' clips single updates.*use at = 'client'",
        ),
        ({"secure": {"threshold": 0.5}}, "secure.threshold"),
        ({"secure": {"neighbours": 3}}, "3 is odd"),
        ({"secure": {"bits": 31}}, "secure.bits"),
        ({"secure": {"range": 0.0}}, "secure.range"),
    ],
)
def test_what_needs_single_updates_is_refused_before_anything_runs(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        secured(**{"scheme": "fedavg", **parts})


def test_an_attack_on_labels_needs_no_single_update_at_the_server() -> None:
    assert secured(attack={"kind": "label-flip"}).secure is not None


@pytest.mark.parametrize(
    ("secure", "participation", "reason"),
    [
        ({}, 0.4, "secure: clients per round: 2; a sum hides single updates among at least 3"),
        ({"neighbours": 6}, 1.0, "secure.neighbours = 6, but a round asks 5 clients; use at most 4"),
        ({"bits": 30}, 1.0, "secure.bits = 30: the sum over 5 clients could exceed 32 bits; use 29 or less"),
    ],
)
def test_a_round_that_is_too_small_or_too_large_is_refused_before_the_first(
    secure: dict[str, Any], participation: float, reason: str
) -> None:
    settings = secured(secure=secure, training={"participation": participation})
    with pytest.raises(UserError, match=reason):
        start(settings, engine_of(settings, COUNTS))


@pytest.mark.parametrize("asked", range(3, 12))
def test_the_advice_of_a_refusal_is_accepted(asked: int) -> None:
    with pytest.raises(UserError, match="neighbours") as refused:
        check_participants(SecureAggregation(neighbours=12), asked, asked)
    (advised,) = re.findall(r"use at most (\d+)", str(refused.value))
    check_participants(SecureAggregation(neighbours=int(advised)), asked, asked)
    for needed in range(3, asked):
        with pytest.raises(UserError, match="threshold") as refused:
            check_participants(SecureAggregation(threshold=1.0), needed, asked)
        thresholds = re.findall(r"a threshold of at most ([\d.]+)", str(refused.value))
        assert len(thresholds) == (2 * needed > asked), "a threshold is more than a half"
        for threshold in thresholds:
            check_participants(SecureAggregation(threshold=float(threshold)), needed, asked)


def test_on_the_command_line_a_refusal_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(tmp_path, capsys, "secure={}", "target.kind='uniform'")
    assert "clients per round: 2" in line
    assert "target.kind = 'global' needs" in refusal(tmp_path, capsys, "secure={}")


def test_class_counts_stay_at_the_client() -> None:
    for scheme in ("fedavg", "shrunk", PRIVATE_ISFL):
        engine = engine_of(secured(scheme), COUNTS)
        assert all(profile.class_counts is None for profile in engine.introduce())


# ---------------------------------------------------------------- a run


def test_an_interrupted_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Started with two workers and resumed with one, three of four clients per round, server buffers and all."""
    training = {"rounds": 5, "local_epochs": 1, "batch_size": 16, "participation": 0.75, "batchnorm": "local"}
    settings = config(secure={}, training=training)
    run(settings, tmp_path / "whole")
    stop_after(tmp_path / "run", 3, workers=2, settings=settings)
    resume(tmp_path / "run")
    model, probabilities, lines = outcome(tmp_path / "run")
    assert (model, probabilities, lines) == outcome(tmp_path / "whole")
    assert all(line["refused"] == {} and line["clipped_values"] == 0 for line in lines)
    assert all(line["client_update_norm"] == line["client_drift"] == [None] * 4 for line in lines)
