"""Flower nodes that introduce themselves when they are first chosen: how long a round waits, and the same bits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, MessageType

from isfl.engines.flower.node import simulated_node
from isfl.federation import run_round, start
from isfl.federation.participation import participants
from isfl.problem.config import config_from
from tests.grids import (
    MEASURED_AT_CLIENT,
    PRIVATE,
    Meddle,
    config_of,
    engine_of,
    federation_of,
    rounds,
    run_locally,
)
from tests.worlds import same_bits

UNIFORM = {"kind": "uniform"}
EIGHT = {"kind": "mixed", "clients": 8, "shard_size": 20, "nr": 0.8}


def hanging(*clients: int) -> Meddle:
    """These nodes are connected and never say who they are."""

    def meddle(client: int, message: Message, reply: Message) -> Message | None:
        return None if client in clients and message.metadata.message_type == MessageType.QUERY else reply

    return meddle


@pytest.mark.timeout(60)
def test_the_deadline_limits_the_wait_for_a_chosen_node_that_hangs(tmp_path: Path) -> None:
    limits = {"wait_seconds": 10.0, "reply_seconds": 600.0}
    config = config_of(
        PRIVATE, seed=5, target=UNIFORM, training={"participation": 0.34}, stragglers={"deadline": 0.4}, flower=limits
    )
    assert [participants(config, 3, round) for round in (1, 2)] == [[0], [1]]
    engine = engine_of(config, federation_of(tmp_path, meddle=hanging(1)))
    began = time.monotonic()
    _, reports = rounds(config, engine, 2)
    assert reports[1].refused == {1: "is not connected"}
    assert time.monotonic() - began < 8


@pytest.mark.timeout(60)
@pytest.mark.parametrize("reply_seconds", [600.0, 0.1])
def test_a_node_that_hangs_is_waited_for_once(reply_seconds: float, tmp_path: Path) -> None:
    """Also if it is asked again, because its time to reply is over."""
    said: list[str] = []
    config = config_of(PRIVATE, target=UNIFORM, flower={"reply_seconds": reply_seconds, "wait_seconds": 0.5})
    engine = engine_of(config, federation_of(tmp_path, meddle=hanging(1)), tell=said.append)
    _, reports = rounds(config, engine)
    assert all(report.refused == {1: "is not connected"} for report in reports)
    assert len([line for line in said if "newly chosen clients" in line]) == 1


def test_a_node_that_was_waited_for_in_vain_takes_part_once_it_introduces_itself(tmp_path: Path) -> None:
    config = config_of(PRIVATE, target=UNIFORM, flower={"reply_seconds": 0.1})
    grid = federation_of(tmp_path, meddle=hanging(1))
    engine = engine_of(config, grid)
    state, report = run_round(start(config, engine), config, engine)
    assert report.refused.keys() == {1}
    grid.meddle = hanging()
    time.sleep(0.2)  # its time to reply is over: it is asked again
    engine.registry.refresh()
    grid.nodes[77] = simulated_node(1, tmp_path)
    engine.registry.refresh()
    assert engine.registry.node_of[1] == 1001, "it has answered: another node that claims its client must wait"
    state, report = run_round(state, config, engine)
    assert report.refused == {} and state.clients.tolist() == [0, 1, 2]


# ------------------------------------------------------------ the same bits


@pytest.mark.parametrize("scheme", ["tempered", PRIVATE, MEASURED_AT_CLIENT])
@pytest.mark.parametrize("simulated", [True, False])
def test_a_resumed_flower_run_introduces_the_rest_with_the_same_bits(
    scheme: Any, simulated: bool, tmp_path: Path
) -> None:
    config = config_of(scheme, seed=1, target=UNIFORM, split=EIGHT, training={"participation": 0.25})
    whole, _ = run_locally(config)
    place = tmp_path if simulated else None
    state, _ = rounds(config, engine_of(config, federation_of(tmp_path, 8), place), 2)
    assert len(state.clients) < len(whole.clients), "some are first chosen after the interruption"
    engine = engine_of(config, federation_of(tmp_path, 8), place)
    engine.restore(state, {})
    state, report = run_round(state, config, engine)
    assert same_bits(state, whole) and report.refused == {}
    np.testing.assert_array_equal(state.clients, whole.clients)


@pytest.mark.parametrize("scheme", ["tempered", PRIVATE])
def test_virtual_clients_train_to_the_same_bits_on_flower_and_locally(scheme: Any, tmp_path: Path) -> None:
    raw = config_of(scheme, target=UNIFORM, training={"participation": 0.1}).model_dump(mode="json")
    virtual = {"kind": "virtual", "clients": 30, "samples_per_client": 8}
    config = config_from({**raw, "split": virtual}, "test")
    here, reports = run_locally(config)
    there, others = rounds(config, engine_of(config, federation_of(tmp_path, 30)))
    assert same_bits(here, there) and len(here.clients) < 30
    assert [report.train_loss for report in reports] == [report.train_loss for report in others]
