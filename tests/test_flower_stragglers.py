"""Stragglers on Flower: simulated latencies give the bits of the local engine; with real nodes the clock decides."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message, MessageType, RecordDict

from isfl.engines.flower.engine import SECURE, FlowerEngine
from isfl.engines.flower.messages import pull
from isfl.engines.flower.wire import NUMBERS
from isfl.errors import UserError
from isfl.experiment.metrics import metrics_of
from isfl.federation import FederationState, RoundReport, run_round, start
from isfl.federation.participation import participants
from isfl.problem.config import Config
from tests.grids import (
    MEASURED_AT_CLIENT,
    Federation,
    config_of,
    engine_of,
    federation_of,
    rounds,
    run_locally,
    secured,
)
from tests.worlds import same_bits

SIMULATED = {"over_selection": 0.4, "deadline": 15.0, "simulated": {"median": 10.0, "never": 0.1}}


def five(scheme: Any = "isfl", **changes: Any) -> Config:
    """Return a configuration with five clients, of which a round needs three."""
    training = {"participation": 0.6, **changes.pop("training", {})}
    return config_of(scheme, split={"clients": 5}, training=training, **changes)


def numbers_in(message: Message) -> Any:
    return message.content[NUMBERS]


@dataclass
class Slow(Federation):
    """A grid that hands out some replies to training late, and some never."""

    held: dict[tuple[int, int], float] = field(default_factory=dict)
    """(client, round of its task) -> the round in which the reply is handed out."""
    now: int = 0
    tasks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Message id -> (client, round) of a training task."""
    evaluated: list[tuple[int, int]] = field(default_factory=list)
    """(client, round) of every request to evaluate."""
    exchanged: list[tuple[int, int]] = field(default_factory=list)
    """(client, round) of every phase of secure aggregation."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        numbers = list(super().push_messages(messages))
        for message, number in zip(messages, numbers, strict=True):
            client = self.nodes[message.metadata.dst_node_id].client
            if message.metadata.message_type == MessageType.TRAIN:
                self.tasks[number] = (client, numbers_in(message)["round"])
            if message.metadata.message_type == MessageType.EVALUATE:
                self.evaluated.append((client, self.now))
            if message.metadata.message_type == SECURE:
                self.exchanged.append((client, self.now))
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        due = [n for n in message_ids if n not in self.tasks or self.held.get(self.tasks[n], 0) <= self.now]
        return super().pull_messages(due)


def slow(state: Path, clients: int, held: dict[tuple[int, int], float]) -> Slow:
    return Slow(federation_of(state, clients).nodes, held=held)


def timed(config: Config, engine: FlowerEngine, grid: Slow) -> tuple[FederationState, list[RoundReport]]:
    """Run all rounds; the grid knows which one it is."""
    state, reports = start(config, engine), []
    for grid.now in range(1, config.training.rounds + 1):
        state, report = run_round(state, config, engine)
        reports.append(report)
    return state, reports


def measured(reports: list[RoundReport]) -> list[dict[str, Any]]:
    """Return the lines of metrics, without seconds, as they are written."""
    lines = [json.loads(json.dumps(metrics_of(report))) for report in reports]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


# ---------------------------------------------------------------- simulated latencies


@pytest.mark.parametrize("scheme", ["isfl", MEASURED_AT_CLIENT])
def test_simulated_latencies_give_the_same_bits_on_flower_and_locally(scheme: Any, tmp_path: Path) -> None:
    config = five(scheme, target={"kind": "uniform"}, stragglers=SIMULATED)
    here, reports = run_locally(config)
    there, others = rounds(config, engine_of(config, federation_of(tmp_path, 5), tmp_path))
    assert same_bits(here, there) and measured(reports) == measured(others)
    assert any(report.late for report in reports)


def test_simulated_latencies_give_the_same_bits_where_the_server_cannot_read_client_states(tmp_path: Path) -> None:
    config = five(stragglers=SIMULATED)
    here, reports = run_locally(config)
    there, others = rounds(config, engine_of(config, federation_of(tmp_path, 5)))
    assert same_bits(here, there) and [r.late for r in reports] == [r.late for r in others]


def test_a_round_in_which_no_client_is_reached_is_counted_like_any_other(tmp_path: Path) -> None:
    never = {"deadline": 15.0, "simulated": {"median": 10.0, "never": 0.9}}
    config = config_of("isfl", seed=25, stragglers=never, flower={"evaluate_share": 0.4})
    engine = engine_of(config, federation_of(tmp_path), tmp_path)
    state, reports = rounds(config, engine, 2)
    assert [report.late for report in reports] == [(0, 1, 2)] * 2
    again = engine_of(config, federation_of(tmp_path), tmp_path)
    again.restore(state, {})
    (_, one), (_, other) = run_round(state, config, engine), run_round(state, config, again)
    assert one.clients.keys() == other.clients.keys() and len(one.clients) == 1


def test_a_flower_simulation_without_latencies_refuses_a_deadline(tmp_path: Path) -> None:
    config = config_of("isfl", stragglers={"deadline": 5.0})
    with pytest.raises(UserError, match="simulated clients answer at once"):
        start(config, engine_of(config, federation_of(tmp_path), tmp_path))


# ---------------------------------------------------------------- the clock


def without(config: Config, state: Path, left_out: set[tuple[int, int]], clients: int = 3) -> FederationState:
    """Return the state after the same rounds without stragglers, in which some (client, round) are refused."""

    def meddle(client: int, message: Message, reply: Message) -> Message:
        is_training = message.metadata.message_type == MessageType.TRAIN
        if is_training and (client, numbers_in(message)["round"]) in left_out:
            numbers_in(reply)["num_samples"] = 10**9
        return reply

    waiting = config.model_copy(update={"stragglers": None})
    return rounds(waiting, engine_of(waiting, federation_of(state, clients, meddle=meddle)))[0]


@pytest.mark.timeout(60)
def test_a_round_closes_at_the_deadline_without_a_node_that_never_answers(tmp_path: Path) -> None:
    config = config_of("isfl", stragglers={"deadline": 0.4}, flower={"reply_seconds": 600.0})
    grid = slow(tmp_path / "slow", 3, {(1, 1): math.inf})
    state, reports = timed(config, engine_of(config, grid), grid)
    assert [report.late for report in reports] == [(1,)] * 3 and all(report.refused == {} for report in reports)
    assert [task for task in grid.tasks.values() if task[0] == 1] == [(1, 1)], "a busy node is sent no other task"
    assert not [1 for client, _ in grid.evaluated if client == 1], "and is not asked to evaluate"
    assert same_bits(state, without(config, tmp_path / "without", {(1, 1), (1, 2), (1, 3)}))


@pytest.mark.timeout(60)
def test_a_round_closes_when_enough_have_answered(tmp_path: Path) -> None:
    config = five("fedavg", training={"rounds": 1}, stragglers={"over_selection": 0.4}, flower={"reply_seconds": 600.0})
    grid = slow(tmp_path, 5, {(1, 1): math.inf, (4, 1): math.inf})
    _, (report,) = timed(config, engine_of(config, grid), grid)
    assert report.participants == (0, 1, 2, 3, 4) and report.late == (1, 4) and report.update_norm.keys() == {0, 2, 3}


@pytest.mark.timeout(60)
def test_answers_that_arrive_with_the_last_one_needed_are_late_and_paid_for(tmp_path: Path) -> None:
    config = five("fedavg", training={"rounds": 1}, stragglers={"over_selection": 0.4})
    grid = slow(tmp_path, 5, {})
    _, (report,) = timed(config, engine_of(config, grid), grid)
    assert len(report.update_norm) == 3 and len(report.late) == 2 and report.refused == {}
    whole = five("fedavg", training={"rounds": 1, "participation": 1.0})
    _, (all_five,) = rounds(whole, engine_of(whole, federation_of(tmp_path / "all", 5)))
    assert report.gradient_evaluations.training == all_five.gradient_evaluations.training
    assert report.bytes_up == all_five.bytes_up


@pytest.mark.timeout(60)
def test_an_answer_that_cannot_be_used_is_not_one_of_those_needed(tmp_path: Path) -> None:
    def meddle(client: int, message: Message, reply: Message) -> Message:
        if client == 0 and message.metadata.message_type == MessageType.TRAIN:
            numbers_in(reply)["num_samples"] = 10**9
        return reply

    config = five("fedavg", training={"rounds": 1}, stragglers={"over_selection": 0.4}, flower={"reply_seconds": 600.0})
    grid = slow(tmp_path, 5, {(4, 1): math.inf})
    grid.meddle = meddle
    _, (report,) = timed(config, engine_of(config, grid), grid)
    assert report.refused.keys() == {0} and report.update_norm.keys() == {1, 2, 3} and report.late == (4,)


@pytest.mark.timeout(60)
def test_a_late_answer_is_counted_in_the_round_it_arrives_in_and_not_aggregated(tmp_path: Path) -> None:
    config = config_of("isfl", stragglers={"deadline": 0.4}, flower={"reply_seconds": 600.0})
    grid = slow(tmp_path / "slow", 3, {(1, 1): 2})
    state, reports = timed(config, engine_of(config, grid), grid)
    assert [report.late for report in reports] == [(1,), (), ()]
    one = reports[2].gradient_evaluations.training / 3
    assert [report.gradient_evaluations.training for report in reports] == [2 * one, 4 * one, 3 * one]
    assert [report.bytes_up for report in reports] == [reports[2].bytes_up // 3 * k for k in (2, 4, 3)]
    assert (1, 2) in grid.tasks.values(), "it is asked again as soon as it is free"
    assert same_bits(state, without(config, tmp_path / "without", {(1, 1)}))


@pytest.mark.timeout(60)
def test_a_node_that_works_for_longer_than_its_time_to_reply_is_asked_again(tmp_path: Path) -> None:
    config = config_of("isfl", stragglers={"deadline": 0.4}, flower={"reply_seconds": 0.2})
    grid = slow(tmp_path, 3, {(1, 1): math.inf})
    _, reports = timed(config, engine_of(config, grid), grid)
    assert [report.late for report in reports] == [(1,), (), ()]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("returns", [3, math.inf])
def test_a_busy_node_receives_no_task_of_secure_aggregation_and_is_late(returns: float, tmp_path: Path) -> None:
    """Client 1 works on its task of round 1 until round 3, or for ever; the others share masks without it."""
    config = secured("fedavg", stragglers={"deadline": 0.4}, flower={"reply_seconds": 600.0})
    grid = slow(tmp_path / "slow", 4, {(1, 1): returns})
    state, reports = timed(config, engine_of(config, grid), grid)
    busy = [1, 2] if returns == 3 else [1, 2, 3]
    assert [report.late for report in reports] == [(1,) if round in busy else () for round in (1, 2, 3)]
    assert all(report.refused == {} and report.train_loss is not None for report in reports)
    assert {round for client, round in grid.exchanged if client == 1} == {1, 3} - set(busy[1:])
    one = reports[1].gradient_evaluations.training / 3
    paid = [3 * one, 3 * one, 5 * one if returns == 3 else 3 * one]
    assert [report.gradient_evaluations.training for report in reports] == paid, "a late answer is counted on arrival"
    assert same_bits(state, without(config, tmp_path / "without", {(1, round) for round in busy}, 4))


def test_a_reply_to_another_message_is_not_an_answer_to_this_one(tmp_path: Path) -> None:
    class Wrong(Federation):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return [reply for number, reply in self.replies.items() if number not in message_ids]

    grid = Wrong(federation_of(tmp_path, 2).nodes)
    _, later = (next(iter(grid.push_messages([Message(RecordDict(), n, MessageType.TRAIN)]))) for n in grid.nodes)
    waiting = {later: 1001}
    assert list(grid.pull_messages(waiting)) and list(pull(grid, waiting)) == [] and waiting == {later: 1001}


def test_without_the_table_every_client_is_waited_for(tmp_path: Path) -> None:
    config = config_of("isfl", flower={"reply_seconds": 0.3}, training={"rounds": 1})
    grid = slow(tmp_path, 3, {(1, 1): math.inf})
    _, (report,) = timed(config, engine_of(config, grid), grid)
    assert report.late == () and report.refused == {1: "did not answer within 0 s"}
    assert participants(config, 3, 1) == [0, 1, 2]
