"""The target estimated from the clients seen so far: its error, and the same bits everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isfl.errors import UserError
from isfl.experiment.metrics import metrics_of
from isfl.experiment.run import LocalHost, resume, run
from isfl.federation import run_round, start
from isfl.federation.target_error import TargetError
from isfl.federation.targets import EstimatedTarget
from isfl.problem.config import config_from
from isfl.theory.arrays import Array
from tests.grids import config_of, engine_of, federation_of, rounds, run_locally
from tests.resumable import config, outcome, stop_after
from tests.test_introduction import Silent
from tests.worlds import engine_of as local_engine
from tests.worlds import federate, same_bits, settings_of

AT_CLIENT = {"name": "isfl", "sampling": {"where": "client"}}
EIGHT = {"kind": "mixed", "clients": 8, "shard_size": 20, "nr": 0.8}


def error_of(counts: Array, clients: int) -> TargetError:
    found = EstimatedTarget().error(counts, clients)
    assert found is not None
    return found


def test_the_target_estimated_from_all_clients_is_the_global_one_to_the_bit() -> None:
    estimated, known = (federate(settings_of("isfl", target={"kind": kind}))[0] for kind in ("estimated", "global"))
    assert same_bits(estimated, known)
    np.testing.assert_array_equal(estimated.target, known.target)


def test_an_estimated_target_comes_closer_to_the_global_one_and_its_bound_covers_the_error() -> None:
    """400 federations of 300 clients: the bound of 95 % is exceeded in less than 5 % of them."""
    rng, missed, target = np.random.default_rng(0), 0, EstimatedTarget()
    errors: dict[int, list[float]] = {20: [], 120: []}
    for _ in range(400):
        mixes = rng.dirichlet(np.full(5, 0.3), size=300)
        counts = np.stack([rng.multinomial(rng.integers(5, 60), mix) for mix in mixes]).astype(float)
        truth, order = counts.sum(axis=0) / counts.sum(), rng.permutation(300)
        for seen, found in errors.items():
            some = counts[np.sort(order[:seen])]
            shares = target.revised(np.empty_like(some), some)[0]
            found.append(float(np.abs(shares - truth).sum()))
            missed += found[-1] > error_of(some, 300).bound
    assert np.mean(errors[120]) < 0.45 * np.mean(errors[20])
    assert missed / 800 < 0.05


def test_the_standard_error_of_an_estimated_share_is_its_deviation_over_samples() -> None:
    rng = np.random.default_rng(1)
    mixes = rng.dirichlet(np.full(4, 0.5), size=200)
    counts = np.stack([rng.multinomial(30, mix) for mix in mixes]).astype(float)
    found, told = [], []
    for _ in range(600):
        some = counts[rng.choice(200, 60, replace=False)]
        found.append(EstimatedTarget().revised(some, some)[0])
        told.append(error_of(some, 200).standard)
    np.testing.assert_allclose(np.mean(told, axis=0), np.std(found, axis=0), rtol=0.12)
    assert error_of(counts, 200).bound == 0
    assert EstimatedTarget().error(counts[:1], 200) is None


def test_the_metrics_record_the_error_of_an_estimated_target_and_of_no_other() -> None:
    settings = settings_of("isfl", target={"kind": "estimated"}, training={"rounds": 6, "participation": 0.25})
    _, reports = federate(settings, counts=np.random.default_rng(0).integers(1, 20, (12, 4)).tolist())
    lines = [metrics_of(report)["target_error"] for report in reports]
    assert lines[-1]["clients"] > lines[0]["clients"] == 3 and lines[-1]["bound"] < lines[0]["bound"]
    assert len(lines[0]["standard"]) == 4
    assert metrics_of(federate(settings_of("isfl"))[1][-1])["target_error"] is None


def test_a_target_that_needs_counts_which_never_come_is_refused_before_the_first_round() -> None:
    for changes, named in (
        ({"scheme": AT_CLIENT}, "scheme.sampling.where = 'client' keeps class counts private, so target.kind = 'estim"),
        ({"scheme": "fedavg", "privacy": {"clip": 1.0, "noise": 1.0}}, "privacy: target.kind = 'estimated'"),
    ):
        with pytest.raises(UserError, match=r"\A[^\n]*\Z") as refused:
            config_from({"target": {"kind": "estimated"}, **changes}, "test")
        assert named in str(refused.value) and "'uniform'" in str(refused.value)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("seen", [20, 60])
def test_the_bound_covers_classes_that_few_clients_hold_and_nobody_seen_has(share: float, seen: int) -> None:
    """400 samples of 300 clients, of which `share` hold nothing but a rare class: exceeded in less than 5 %."""
    rng, missed, unseen = np.random.default_rng(2), 0, 0
    counts = np.zeros((300, 3))
    counts[:, :2] = rng.multinomial(30, [0.5, 0.5], size=300)
    counts[: int(300 * share)] = [0, 0, 30]
    truth = counts.sum(axis=0) / counts.sum()
    for _ in range(400):
        some = counts[rng.choice(300, seen, replace=False)]
        shares = EstimatedTarget().revised(some, some)[0]
        missed += float(np.abs(shares - truth).sum()) > error_of(some, 300).bound
        unseen += shares[2] == 0
    assert missed / 400 < 0.05
    assert unseen or (share, seen) in ((0.1, 60), (0.05, 60)), "nobody seen has the class in some of the samples"


def test_the_share_of_an_unseen_class_is_bounded_by_the_rule_of_three() -> None:
    """Two classes: log(2 / 0.05) = 3 + log 2, divided by n, of many clients; nothing once all were seen."""
    for seen in (30, 300):
        counts = np.tile([10.0, 0.0], (seen, 1))
        found = error_of(counts, 1_000_000)
        assert found.unseen == pytest.approx((3 + np.log(2)) / seen, rel=0.002)
        assert found.bound == pytest.approx(2 * found.unseen)
    assert error_of(np.tile([10.0, 0.0], (40, 1)), 40).bound == 0
    assert error_of(10 * np.eye(3, 100), 1000).bound == 2, "no distance is larger"


@pytest.mark.filterwarnings("error")
def test_a_capped_estimate_of_nobody_is_no_estimate_and_no_warning() -> None:
    settings = settings_of("isfl", target={"kind": "estimated", "cap": 2.0})
    _, reports = federate(settings, local_engine(settings, kind=Silent))
    assert [report.target_error for report in reports] == [None] * 3


def test_probabilities_follow_a_changed_estimate_when_the_client_is_next_admitted() -> None:
    settings = settings_of("isfl", target={"kind": "estimated"}, training={"rounds": 5, "participation": 0.25})
    engine = local_engine(settings, counts=np.random.default_rng(0).integers(1, 20, (12, 4)).tolist())
    state = start(settings, engine)
    for _ in range(settings.training.rounds):
        before = state
        state, report = run_round(state, settings, engine)
        kept = [k for k in before.clients.tolist() if k not in report.participants]
        was, now = (s.probabilities[s.rows(kept)] for s in (before, state) if s.probabilities is not None)
        np.testing.assert_array_equal(was, now)
        assert len(np.unique(state.target, axis=0)) == 1, "the target is that of all clients seen"
    assert kept


# ------------------------------------------------------------ the same bits everywhere

SOME: dict[str, Any] = {"rounds": 4, "local_epochs": 1, "batch_size": 16, "participation": 0.25}


def test_two_workers_and_an_interruption_change_no_bit_of_an_estimated_target(tmp_path: Path) -> None:
    settings = config(scheme="isfl", target={"kind": "estimated"}, split=EIGHT, training=SOME)
    run(settings, tmp_path / "whole")
    run(settings, tmp_path / "two", host=LocalHost(2))
    stop_after(tmp_path / "stopped", 2, settings=settings)
    resume(tmp_path / "stopped")
    whole = outcome(tmp_path / "whole")
    seen = [line["target_error"]["clients"] for line in whole[2]]
    assert seen[1] < seen[-1] < 8, "some are first seen after the interruption"
    assert outcome(tmp_path / "two") == whole == outcome(tmp_path / "stopped")


def test_an_estimated_target_has_the_same_bits_on_flower_and_locally(tmp_path: Path) -> None:
    settings = config_of("isfl", target={"kind": "estimated"}, split=EIGHT, training={"participation": 0.25})
    here, reports = run_locally(settings)
    there, others = rounds(settings, engine_of(settings, federation_of(tmp_path, 8)))
    assert same_bits(here, there)
    for name in ("clients", "target", "counts", "probabilities"):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
    assert [metrics_of(r)["target_error"] for r in reports] == [metrics_of(r)["target_error"] for r in others]
    assert len(here.clients) < 8
