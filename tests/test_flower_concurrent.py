"""A node answers messages side by side; two that arrive together must not both be answered from the same memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message

from isfl.engines.flower import client as client_module
from isfl.engines.flower import node as node_module
from isfl.engines.flower.client import PROBLEM
from isfl.engines.flower.node import Node, memory_folder, remember, told_first
from isfl.engines.flower.wire import NUMBERS
from isfl.federation import run_round, start
from isfl.files import write_whole
from tests.grids import Federation, engine_of, secured

WINDOW = 0.3
"""Seconds between reading and writing, in which the other message can be read too."""


class Doubled(Federation):
    """Client 0 receives every message of one kind twice at the same time."""

    kind: tuple[str, str | None] = ("", None)
    """The type of a message, and the phase that it names."""
    pairs: Sequence[Message | None] = ()

    def answer(self, node: Node, message: Message) -> Message | None:
        numbers: Any = message.content.get(NUMBERS, {})
        if node.client != 0 or (message.metadata.message_type, numbers.get("phase")) != self.kind:
            return super().answer(node, message)
        with ThreadPoolExecutor(2) as threads:
            answer = super().answer
            self.pairs = list(threads.map(lambda _: answer(node, message), range(2)))
        return next(reply for reply in self.pairs if reply is not None and PROBLEM not in reply.content)


@pytest.mark.parametrize(
    "kind",
    [("train.secure", "shares"), ("train", None), ("train.secure", "unmask")],
    ids=["shares", "upload", "unmask"],
)
def test_of_two_tasks_that_arrive_together_one_is_answered(
    kind: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two uploads with the same masks would reveal their difference, two last answers both shares of a neighbour."""

    def slowly(*arguments: Any) -> None:
        time.sleep(WINDOW)
        remember(*arguments)

    monkeypatch.setattr(client_module, "remember", slowly)
    grid = Doubled({10 + k: Node(k, tmp_path) for k in range(4)})
    grid.kind = kind
    config = secured("fedavg")
    engine = engine_of(config, grid)
    _, report = run_round(start(config, engine), config, engine)
    assert report.refused == {} and len(grid.pairs) == 2
    (refused,) = [reply for reply in grid.pairs if reply is not None and PROBLEM in reply.content]
    problem = refused.content[PROBLEM]
    assert isinstance(problem, ConfigRecord) and "out of order; each is answered once" in str(problem["reason"])


def test_noised_counts_that_are_asked_for_twice_at_the_same_time_are_drawn_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def slowly(path: Path, content: bytes) -> None:
        time.sleep(WINDOW)
        write_whole(path, content)

    monkeypatch.setattr(node_module, "write_whole", slowly)
    node, counts = Node(0, tmp_path), np.array([3.0, 4.0])
    with ThreadPoolExecutor(2) as threads:
        told = list(threads.map(lambda noise: told_first(node, counts, counts + noise), (0.25, 0.5)))
    assert np.array_equal(told[0], told[1])


def test_the_first_two_messages_of_a_node_may_arrive_together(tmp_path: Path) -> None:
    """Each makes the node's folders if there are none; many tries, because the moment in between is short."""
    runs = [f"{k:032x}" for k in range(2)]
    with ThreadPoolExecutor(4) as threads:
        for attempt in range(100):
            node = Node(0, tmp_path / str(attempt))
            folders = list(threads.map(lambda run, node=node: memory_folder(node, run, make=True), runs * 2))
            assert all(folder.is_dir() for folder in folders)
