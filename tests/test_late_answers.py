"""What late and unsent tasks leave behind: bytes, probabilities, memories, and which node a client has."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message, MessageType

from isfl.engines import LocalEngine
from isfl.engines.flower.engine import RENEW
from isfl.engines.flower.node import simulated_node
from isfl.federation import run_round, start
from isfl.federation.participation import participants
from isfl.federation.values import Refusal, RenewTask
from tests.grids import MEASURED_AT_CLIENT, config_of, engine_of, federation_of, rounds
from tests.test_flower_stragglers import slow, timed
from tests.worlds import COUNTS, federate, network, settings_of
from tests.worlds import engine_of as local_engine

UNIFORM = {"kind": "uniform"}
LATE = {"deadline": 10.0, "simulated": {"median": 10.0, "spread": 0.8}}

# ---------------------------------------------------------------- bytes


@pytest.mark.timeout(60)
def test_a_task_that_a_busy_node_is_not_sent_costs_no_bytes(tmp_path: Path) -> None:
    config = config_of("isfl", stragglers={"deadline": 0.4}, flower={"reply_seconds": 600.0})
    grid = slow(tmp_path, 3, {(1, 1): math.inf})
    _, reports = timed(config, engine_of(config, grid), grid)
    one = reports[0].bytes_down // 3
    assert [report.bytes_down for report in reports] == [3 * one, 2 * one, 2 * one]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("stragglers", [None, {"deadline": 5.0}])
def test_a_task_of_a_client_that_is_not_connected_costs_no_bytes(stragglers: Any, tmp_path: Path) -> None:
    config = config_of("isfl", **({} if stragglers is None else {"stragglers": stragglers}))
    grid = federation_of(tmp_path)
    engine = engine_of(config, grid)
    state, report = run_round(start(config, engine), config, engine)
    del grid.nodes[1001]
    _, after = run_round(state, config, engine)
    assert after.refused == {1: "is not connected"} and after.bytes_down == report.bytes_down // 3 * 2


def test_a_renewal_that_is_not_sent_costs_no_bytes() -> None:
    class Leaving(LocalEngine):
        def renew(self, tasks: Sequence[RenewTask]) -> Any:
            stay = [task for task in tasks if task.client != 1]
            return [*super().renew(stay), Refusal(1, "is not connected", sent=False)]

    settings = settings_of(MEASURED_AT_CLIENT, target=UNIFORM, training={"rounds": 1})
    (whole,), (report,) = (federate(settings, local_engine(settings, kind=k))[1] for k in (LocalEngine, Leaving))
    assert report.refused == {1: "renewal: is not connected"}
    model = sum(value.numel() * value.element_size() for value in network().state_dict().values())
    assert whole.bytes_down - report.bytes_down == model + 4 * 8


# ---------------------------------------------------------------- what stays


def test_the_probabilities_that_the_server_has_for_a_late_client_stay() -> None:
    settings = settings_of("isfl", training={"rounds": 3, "local_epochs": 1}, stragglers=LATE)
    engine = local_engine(settings, counts=COUNTS * 2)
    state = start(settings, engine)
    for _ in range(3):
        before = state
        state, report = run_round(state, settings, engine)
        assert before.probabilities is not None and state.probabilities is not None
        changed = (before.probabilities != state.probabilities).any(axis=1)
        assert 0 < len(report.late) < 6 and set(np.flatnonzero(changed)) == set(range(6)) - set(report.late)


@pytest.mark.timeout(60)
def test_the_probabilities_that_the_server_has_for_a_late_node_stay(tmp_path: Path) -> None:
    config = config_of("isfl", stragglers={"deadline": 0.4}, flower={"reply_seconds": 600.0}, training={"rounds": 2})
    grid = slow(tmp_path, 3, {(1, 1): 2, (1, 2): math.inf})
    engine = engine_of(config, grid)
    first = start(config, engine)
    last, reports = timed(config, engine, grid)
    assert [report.late for report in reports] == [(1,), (1,)]
    assert first.probabilities is not None and last.probabilities is not None
    assert (first.probabilities != last.probabilities).any(axis=1).tolist() == [True, False, True]


def test_a_late_client_remembers_the_statistics_and_probabilities_of_its_training() -> None:
    parts: dict[str, Any] = {"target": UNIFORM, "training": {"rounds": 1, "batchnorm": "local"}}
    slow_settings, settings = (
        settings_of(MEASURED_AT_CLIENT, **parts, **more) for more in ({"stragglers": LATE}, dict[str, Any]())
    )
    options: dict[str, Any] = {"counts": COUNTS * 2, "model": network(batchnorm=True)}
    late_engine, engine = local_engine(slow_settings, **options), local_engine(settings, **options)
    (report,), _ = federate(slow_settings, late_engine)[1], federate(settings, engine)
    assert report.late
    for client in report.late:
        late, in_time = late_engine.memory(client), engine.memory(client)
        assert late.local_model is not None and in_time.local_model is not None and late.statistics
        for one, other in ((late.local_model, in_time.local_model), (late.statistics, in_time.statistics)):
            assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
        assert late.probabilities is not None and in_time.probabilities is not None
        np.testing.assert_array_equal(late.probabilities, report.probabilities[client])
        assert (late.probabilities != in_time.probabilities).any(), "who is in time finds new ones after the round"


# ---------------------------------------------------------------- the clock


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [RENEW, MessageType.EVALUATE])
def test_the_deadline_also_limits_renewal_and_evaluation(kind: str, tmp_path: Path) -> None:
    def meddle(client: int, message: Message, reply: Message) -> Message | None:
        return None if client == 1 and message.metadata.message_type == kind else reply

    scheme = MEASURED_AT_CLIENT if kind == RENEW else "isfl"
    limits = {"reply_seconds": 8.0}
    config = config_of(scheme, target=UNIFORM, training={"rounds": 1}, stragglers={"deadline": 0.6}, flower=limits)
    began = time.monotonic()
    _, (report,) = rounds(config, engine_of(config, federation_of(tmp_path, meddle=meddle)))
    assert time.monotonic() - began < 7
    if kind == RENEW:
        assert report.refused == {1: "renewal: did not answer within 1 s"}
    else:
        assert report.refused == {} and report.clients.keys() == {0, 2}


@pytest.mark.timeout(60)
def test_the_late_answers_of_the_last_round_are_not_counted(tmp_path: Path) -> None:
    config = config_of("isfl", training={"rounds": 2}, stragglers={"deadline": 0.4}, flower={"reply_seconds": 600.0})
    grid = slow(tmp_path, 3, {(1, 2): 3})
    _, (first, last) = timed(config, engine_of(config, grid), grid)
    assert last.late == (1,)
    assert last.gradient_evaluations.training == first.gradient_evaluations.training / 3 * 2
    assert last.bytes_up == first.bytes_up // 3 * 2


@pytest.mark.timeout(60)
def test_a_node_that_answered_late_keeps_its_client(tmp_path: Path) -> None:
    """Another node that claims the client takes over from one that does not answer, and this one did."""
    config = config_of(
        "isfl",
        seed=17,
        split={"clients": 4},
        training={"participation": 0.5, "evaluate_every": 3},
        stragglers={"deadline": 0.4},
        flower={"reply_seconds": 600.0},
    )
    assert [1 in participants(config, 4, round) for round in (1, 2, 3)] == [True, False, True]
    grid = slow(tmp_path, 4, {(1, 1): 2})
    engine = engine_of(config, grid)
    state = start(config, engine)
    for grid.now in (1, 2):
        state, _ = run_round(state, config, engine)
    grid.nodes[77] = simulated_node(1, tmp_path)
    engine.registry.refresh()
    assert engine.registry.node_of[1] == 1001
