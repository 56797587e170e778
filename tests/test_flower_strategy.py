"""An existing Flower app before and after: a few changed lines, and its nodes draw by class."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from isfl.engines.flower.strategy import ISFL, class_counts, sampler
from isfl.errors import UserError
from tests import grids  # noqa: F401 (makes this a process that serves a run)

EXAMPLE = Path(__file__).parents[1] / "examples/flower_dropin"
MODULES = ("task", "client_app", "server_app")
NODES = 4


def test_importance_sampling_takes_at_most_fifteen_changed_lines() -> None:
    added = removed = 0
    for name in ("task.py", "client_app.py", "server_app.py", "pyproject.toml"):
        before, after = ((EXAMPLE / which / name).read_text().splitlines() for which in ("before", "after"))
        changes = [line for line in difflib.unified_diff(before, after, n=0) if line[:2] not in ("++", "--", "@@")]
        added += sum(line.startswith("+") for line in changes)
        removed += sum(line.startswith("-") for line in changes)
    assert 0 < added <= 15 and removed <= added


class Loop(Grid):
    """A grid that calls a client app in this process."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.sent: list[Message] = []

    def set_run(self, run: Any) -> None: ...
    @property
    def run(self) -> Any: ...
    def create_message(self, *arguments: Any, **options: Any) -> Any: ...
    def push_messages(self, messages: Any) -> Any: ...
    def pull_messages(self, message_ids: Any) -> Any: ...
    def get_node_ids(self) -> Iterable[int]:
        return [2**63 + 100 + k for k in range(NODES)]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        replies = []
        for message in messages:
            self.sent.append(message)
            node = message.metadata.dst_node_id
            place: dict[str, Any] = {"partition-id": node - 2**63 - 100, "num-partitions": NODES}
            reply = self.app(message, Context(1, node, place, RecordDict(), {}))
            reply.metadata.__dict__["_src_node_id"] = node
            replies.append(reply)
        return replies


@pytest.fixture(params=["before", "after"])
def modules(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(EXAMPLE / request.param)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    loaded = {name: __import__(name) for name in MODULES}
    for name in MODULES:  # forgotten again at the end
        monkeypatch.setitem(sys.modules, name, loaded[name])
    return request.param, loaded


def test_the_app_learns_before_and_after(
    modules: tuple[str, dict[str, ModuleType]], capsys: pytest.CaptureFixture[str]
) -> None:
    which, app = modules
    grid = Loop(app["client_app"].app)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        app["server_app"].main(grid, Context(1, 0, {}, RecordDict(), {"num-rounds": 4}))
    accuracies = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines() if "accuracy" in line]
    assert len(accuracies) == 5 and accuracies[-1] > accuracies[0] + 0.2
    told = [message.content.get("isfl") for message in grid.sent]
    if which == "before":
        assert told == [None] * 16
        return
    probabilities: list[Any] = [record.get("probabilities") for record in told if isinstance(record, ConfigRecord)]
    assert probabilities[:NODES] == [None] * NODES, "in the first round nothing is known of the nodes"
    assert all(np.isclose(sum(q), 1) for q in probabilities[NODES:])
    assert probabilities[NODES] != probabilities[2 * NODES], "they are renewed every round"


def message_with(record: dict[str, Any] | None) -> Message:
    content = RecordDict() if record is None else RecordDict({"isfl": ConfigRecord(record)})
    return Message(content, 77, "train")


def test_a_node_draws_with_the_probabilities_it_was_sent() -> None:
    labels = [0] * 90 + [1] * 10
    head = {"classes": 3, "seed": 0, "round": 2}
    drawn = [labels[i] for i in sampler(message_with({**head, "probabilities": [0.2, 0.8, 0.0]}), labels)]
    assert 0.6 < np.mean(drawn) < 0.95
    natural = [labels[i] for i in sampler(message_with(head), labels)]
    assert np.mean(natural) < 0.3
    assert list(sampler(message_with(head), labels)) == list(sampler(message_with(head), labels))
    assert list(sampler(message_with(head), labels)) != list(sampler(message_with({**head, "round": 3}), labels))
    assert class_counts(message_with(head), labels)["counts"] == [90, 10, 0]
    with pytest.raises(UserError, match="not from the strategy ISFL"):
        sampler(message_with(None), labels)


@pytest.mark.parametrize("counts", [None, [1, 2], [1, 2, -3], [0, 0, 0], [1.5, 1.0, 1.0], "many"])
def test_impossible_counts_are_not_used(counts: Any) -> None:
    strategy = ISFL(torch.nn.Linear(2, 3), (torch.zeros(3, 2), torch.arange(3)), 3)
    reply = Message(RecordDict(), reply_to=message_with({"classes": 3}))
    if counts is not None:
        reply.content["isfl"] = ConfigRecord({"counts": counts})
    assert strategy._counts_in(reply) is None
