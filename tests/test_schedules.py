"""The learning rate over rounds: by hand, and in training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isfl.federation.optimizers.adam import Adam
from isfl.federation.optimizers.sgd import SGD
from isfl.federation.schedules import Constant, Cosine, Schedule, Step
from isfl.federation.settings import Training
from isfl.federation.values import TrainTask, Weights
from tests.grids import config_of, engine_of, federation_of, rounds, run_locally
from tests.refusals import refusal
from tests.worlds import engine_of as local_engine_of
from tests.worlds import same_bits, settings_of

HALF = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Constant(), [1, 1, 1, 1]),
        (Step(every=2, factor=0.5), [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125]),
        (Step(every=1, factor=0.1), [1, 0.1, 0.01]),
        (Step(every=3, factor=1.0), [1, 1, 1, 1]),
        (Cosine(), [1, (1 + HALF) / 2, 0.5, (1 - HALF) / 2]),
        (Cosine(last=0.2), [1, 0.2 + 0.4 * (1 + HALF), 0.6, 0.2 + 0.4 * (1 - HALF)]),
        (Cosine(last=1.0), [1, 1, 1]),
    ],
    ids=str,
)
def test_factors_by_hand(schedule: Schedule, factors: list[float]) -> None:
    found = [schedule.multiplier(round, len(factors)) for round in range(1, len(factors) + 1)]
    assert found == pytest.approx(factors, rel=1e-12)


def test_only_the_learning_rate_of_an_optimiser_changes() -> None:
    training = Training(rounds=4, optimizer=SGD(lr=0.1, momentum=0.9), schedule=Step(every=2, factor=0.25))
    assert training.optimizer_in(1) == training.optimizer_in(2) == SGD(lr=0.1, momentum=0.9)
    assert training.optimizer_in(3) == SGD(lr=0.025, momentum=0.9)
    assert Training(optimizer=Adam(lr=0.01)).optimizer_in(25) == Adam(lr=0.01)


STEP = {"kind": "step", "every": 2, "factor": 0.25}


def update_of(round: int, optimizer: dict[str, Any], schedule: dict[str, Any]) -> Weights:
    """Return how far one gradient step in this round moves the initial model."""
    training = {"rounds": 4, "local_epochs": 1, "batch_size": 40, "optimizer": optimizer, "schedule": schedule}
    engine = local_engine_of(settings_of("fedavg", training=training))
    before = engine.server.initial_model()
    (update,) = engine.train([TrainTask(round, 0, before, np.full(4, 0.25), None)])
    return {name: value - before[name] for name, value in update.model.items()}


@pytest.mark.parametrize(
    "optimizer", [{"kind": "sgd", "lr": 0.5}, {"kind": "adam", "lr": 0.01}], ids=lambda o: o["kind"]
)
@pytest.mark.parametrize(("round", "factor"), [(2, 1.0), (3, 0.25), (4, 0.25)])
def test_a_step_in_round_3_is_factor_times_as_long(optimizer: dict[str, Any], round: int, factor: float) -> None:
    """The first step of SGD, and of Adam, is proportional to the learning rate."""
    plain, scheduled = (update_of(round, optimizer, schedule) for schedule in ({"kind": "constant"}, STEP))
    for name, value in plain.items():
        assert value.abs().max() > 0
        torch.testing.assert_close(scheduled[name], factor * value, rtol=1e-3, atol=1e-6)


def test_flower_nodes_follow_the_schedule(tmp_path: Path) -> None:
    config = config_of("fedavg", training={"schedule": {"kind": "cosine"}})
    expected, _ = run_locally(config)
    assert same_bits(expected, rounds(config, engine_of(config, federation_of(tmp_path), tmp_path))[0])
    assert not same_bits(expected, run_locally(config_of("fedavg"))[0])


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("{every = 2}", "training: schedule.every is 2 and rounds is 2: the learning rate would never change"),
        ("{every = 3}", "lower training.schedule.every"),
        ("{kind = 'cosin'}", "training.schedule.kind: found 'cosin'; choose one of 'constant', 'step', 'cosine'"),
        ("{kind = 'step', factor = 0.0}", "training.schedule.factor: found 0.0"),
        ("{kind = 'step', every = 0}", "training.schedule.every: found 0"),
        ("{kind = 'cosine', last = 2.0}", "training.schedule.last: found 2.0"),
        ("{kind = 'constant', every = 2}", "training.schedule.every: unknown key"),
    ],
)
def test_an_invalid_schedule_is_refused(
    schedule: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refusal(tmp_path, capsys, f"training.schedule={schedule}")
    assert not (tmp_path / "out").exists()


def test_a_schedule_that_ends_with_the_last_round_is_allowed() -> None:
    assert Training(rounds=3, schedule=Step(every=2)).schedule == Step(every=2)
    assert Training.model_validate({"rounds": 9, "schedule": {"every": 3}}).schedule == Step(every=3, factor=0.5)
