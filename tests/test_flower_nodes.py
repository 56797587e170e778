"""Flower nodes leave and return, keep their state, and have their own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Error, Message, RecordDict

from isfl.engines.flower import node as nodes
from isfl.engines.flower.messages import StoppedError
from isfl.engines.flower.node import Node, node_of, recall, remember, simulated_node
from isfl.engines.flower.wire import NUMBERS
from isfl.errors import UserError
from isfl.federation import run_round, start
from isfl.federation.values import ClientMemory, FederationState
from tests.grids import (
    MEASURED_AT_CLIENT,
    PRIVATE,
    RUN,
    Federation,
    config_of,
    engine_of,
    federation_of,
    own,
    rounds,
    run_locally,
)

# ------------------------------------------------------------ nodes come and go


class Leaving(Federation):
    """Client 1 leaves in the second round and returns in the third with another number."""

    def push_messages(self, messages: Any) -> Any:
        messages = list(messages)
        told = [m.content[NUMBERS] for m in messages if m.metadata.message_type == "train"]
        for numbers in told[:1]:
            if numbers["round"] == 2:
                self.nodes.pop(1001, None)
        return super().push_messages(messages)


def test_a_node_that_leaves_is_reported_and_can_return(tmp_path: Path) -> None:
    config = config_of("isfl", flower={"reply_seconds": 60.0})
    grid = Leaving({1000 + k: simulated_node(k, tmp_path) for k in range(3)})
    engine = engine_of(config, grid)
    state, _ = rounds(config, engine, 1)
    state, report = run_round(state, config, engine)
    assert report.refused == {1: "left before it answered"} and report.participants == (0, 1, 2)
    grid.nodes[77] = simulated_node(1, tmp_path)
    state, report = run_round(state, config, engine)
    assert report.refused == {} and report.clients.keys() == {0, 1, 2}


@pytest.mark.parametrize("word", ["none", "Flower's"])
def test_a_node_that_replaces_an_unresponsive_one_participates(word: str, tmp_path: Path) -> None:
    """A restarted node has a new number, and for a minute the SuperLink still lists the old one."""
    dead: list[int] = []

    def meddle(client: int, message: Message, reply: Message) -> Message | None:
        if message.metadata.dst_node_id not in dead:
            return reply
        return None if word == "none" else Message(Error(5, "Node Unavailable"), reply_to=message)

    config = config_of("isfl")
    grid = federation_of(tmp_path, meddle=meddle)
    engine = engine_of(config, grid)
    state = start(config, engine)
    dead.append(1001)
    grid.nodes[77] = simulated_node(1, tmp_path)
    state, report = run_round(state, config, engine)
    assert list(report.refused) == [1]
    state, report = run_round(state, config, engine)
    assert report.refused == {}


def test_a_resumed_run_waits_a_limited_time_for_its_clients(tmp_path: Path) -> None:
    config = config_of("isfl", flower={"wait_seconds": 0.5, "min_clients": 2})
    said: list[str] = []
    engine = engine_of(config, federation_of(tmp_path, clients=2), tell=said.append)
    sizes = np.array([len(data) for data in engine.problem.clients])
    checkpoint = FederationState(1, {}, 3, np.arange(3), np.full((3, 10), 0.1), sizes, np.ones(3, int), None, None)
    engine.restore(checkpoint, {})
    assert any("2 of 3 are connected, continuing" in line for line in said)
    with pytest.raises(UserError, match="1 of 3 are connected"):
        engine_of(config, federation_of(tmp_path, clients=1)).restore(checkpoint, {})


def test_a_client_that_is_not_connected_is_refused_at_once(tmp_path: Path) -> None:
    config = config_of("isfl")
    grid = federation_of(tmp_path)
    engine = engine_of(config, grid)
    state = start(config, engine)
    del grid.nodes[1001]
    _, report = run_round(state, config, engine)
    assert report.refused == {1: "is not connected"}


def test_a_run_with_too_few_nodes_waits_and_then_stops(tmp_path: Path) -> None:
    config = config_of("isfl", flower={"min_clients": 2, "wait_seconds": 0.5})
    grid = federation_of(tmp_path)
    engine = engine_of(config, grid)
    state = start(config, engine)
    del grid.nodes[1001], grid.nodes[1002]
    with pytest.raises(UserError, match=r"clients for round 1: 1 of 2 are connected .* resume with isfl resume"):
        run_round(state, config, engine)
    with pytest.raises(UserError, match="min_clients = 4, but there are 3"):
        engine_of(config_of("isfl", flower={"min_clients": 4}), grid)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Node(0, Path("x")), "client 0, which is connected: it must wait"),
        (Node(7, Path("x")), "partition-id is 7, but the split has 3 clients"),
        (Node(2, Path("x"), data="mine.npz"), "the run needs flower.own_data = true"),
    ],
)
def test_a_node_that_does_not_fit_is_told_why(node: Node, reason: str, tmp_path: Path) -> None:
    grid = Federation({1: simulated_node(0, tmp_path), 2: simulated_node(1, tmp_path), 9: node})
    said: list[str] = []
    with pytest.raises(UserError, match=r"2 of 3 .* start the others and run again"):
        engine_of(config_of("isfl"), grid, tell=said.append).introduce()
    assert any(line.startswith("node 9") and reason in line for line in said)


def test_a_run_can_be_asked_to_stop_while_it_waits(tmp_path: Path) -> None:
    config = config_of("isfl", flower={"reply_seconds": 60.0, "wait_seconds": 60.0})
    grid = federation_of(tmp_path, clients=2)
    with pytest.raises(StoppedError):
        engine_of(config, grid, stopped=lambda: True).introduce()


# ------------------------------------------------------------ the state of a node


def test_client_memory_survives_a_restart(tmp_path: Path) -> None:
    node = simulated_node(4, tmp_path)
    memory = ClientMemory({"w": torch.randn(3)}, {"mean": torch.randn(2)}, np.array([0.25, 0.75]))
    remember(node, RUN, 3, memory)
    back = recall(node, RUN, 3)
    assert back.local_model is not None and memory.local_model is not None and back.probabilities is not None
    assert torch.equal(back.local_model["w"], memory.local_model["w"])
    assert torch.equal(back.statistics["mean"], memory.statistics["mean"])
    assert np.array_equal(back.probabilities, [0.25, 0.75])
    assert recall(node, RUN, 2) == ClientMemory() == recall(simulated_node(5, tmp_path), RUN, 3)


def test_a_node_does_not_fill_its_disk(tmp_path: Path) -> None:
    node, memory = simulated_node(0, tmp_path), ClientMemory({"w": torch.zeros(1)})
    for run in range(8):
        for number in range(1, 9):
            remember(node, f"{run:032x}", number, memory)
    assert len(list(tmp_path.rglob("*.safetensors"))) <= nodes.RUNS_KEPT * nodes.ROUNDS_KEPT
    assert recall(node, f"{7:032x}", 6).local_model is not None


@pytest.mark.parametrize("run", ["../../etc", "", "0123", f"{RUN}/x", RUN.upper()])
def test_the_name_of_a_run_cannot_escape_the_state_directory(run: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="32 hexadecimal digits"):
        remember(simulated_node(0, tmp_path), run, 1, ClientMemory())


def test_a_node_configuration_needs_its_number() -> None:
    assert node_of({"partition-id": 3, "state-dir": "/s", "data": "d.npz"}) == Node(
        3, Path("/s"), "d.npz", allow_code=frozenset()
    )
    for wrong in ({}, {"partition-id": "1"}, {"partition-id": -1}):
        with pytest.raises(UserError, match="needs partition-id"):
            node_of(wrong)
    assert node_of({"partition-id": 0, "private": "true", "max-epsilon": 2}).max_epsilon == 2.0
    for misread in ("True", "yes", 2):
        with pytest.raises(UserError, match="write true or false"):
            node_of({"partition-id": 0, "private": misread})


def test_a_node_that_failed_to_introduce_itself_is_asked_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def meddle(client: int, message: Message, reply: Message) -> Message:
        asked.append(client)
        return Message(Error(3, "Message Unavailable"), reply_to=message) if asked.count(client) == 1 else reply

    config = config_of("isfl", flower={"wait_seconds": 5.0})
    profiles = engine_of(config, federation_of(tmp_path, meddle=meddle)).introduce()
    assert [profile.client for profile in profiles] == [0, 1, 2]


def test_a_forgotten_run_is_not_treated_as_new(tmp_path: Path) -> None:
    node, memory = simulated_node(0, tmp_path), ClientMemory({"w": torch.zeros(1)})
    for run in range(nodes.RUNS_KEPT + 1):
        remember(node, f"{run:032x}", 1, memory)
    with pytest.raises(UserError, match="has forgotten this run"):
        recall(node, f"{0:032x}", 1)
    remember(node, f"{1:032x}", 9, memory)
    remember(node, f"{1:032x}", 2, memory)  # the server went back to an old backup
    assert recall(node, f"{1:032x}", 99) == recall(node, f"{1:032x}", 2)
    assert (tmp_path / "client-0").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "head",
    [None, {"run": RUN}, {"run": RUN, "config": "{", "classes": ["a"], "shape": [1]}],
    ids=["none", "keys", "json"],
)
def test_an_invalid_message_is_answered_with_an_error(head: dict[str, Any] | None, tmp_path: Path) -> None:
    grid = federation_of(tmp_path)
    content = RecordDict() if head is None else RecordDict({"isfl": ConfigRecord(head)})
    (number,) = grid.push_messages([Message(content, 1000, "train")])
    (reply,) = grid.pull_messages([number])
    assert "reason" in reply.content["problem"]


# ------------------------------------------------------------ own data


@pytest.mark.parametrize(
    "changes",
    [{}, *({"scheme": scheme, "target": {"kind": "uniform"}} for scheme in (PRIVATE, MEASURED_AT_CLIENT))],
    ids=["server", "client", "client measures"],
)
def test_nodes_train_on_the_data_their_operators_name(changes: dict[str, Any], tmp_path: Path) -> None:
    """The same samples as in the split, so the same bits; the server never loads them."""
    config, grid = own(tmp_path, **changes)
    engine = engine_of(config, grid)
    assert engine.problem.population is None
    state, reports = rounds(config, engine)
    expected, _ = run_locally(config_of(**{"scheme": "isfl", **changes}))
    assert all(torch.equal(state.model[name], value) for name, value in expected.model.items())
    assert reports[-1].clients.keys() == (set() if config.hides_counts else {0, 1, 2})


def test_own_data_must_be_given_and_must_exist(tmp_path: Path) -> None:
    config, grid = own(tmp_path)
    grid.nodes[10] = Node(0, tmp_path / "state")
    (tmp_path / "1.npz").unlink()
    said: list[str] = []
    with pytest.raises(UserError, match="1 of 3"):
        engine_of(config, grid, tell=said.append).introduce()
    assert any("name yours in the node configuration" in line for line in said)
    assert any("no such file" in line for line in said)


def test_own_data_and_the_number_of_clients_go_together() -> None:
    for wrong in ({"own_data": True}, {"clients": 3}):
        with pytest.raises(UserError, match="go together"):
            config_of("isfl", flower=wrong)
