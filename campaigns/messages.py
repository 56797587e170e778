"""Flower messages with wrong types, sizes and numbers, doubled and replayed, for the client app and the server."""

from __future__ import annotations

import copy
import random
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from tests.grids import MEASURED_AT_CLIENT, Federation, config_of, engine_of, secured

from campaigns.mutations import changed_bytes
from isfl.engines.flower.client import PROBLEM, client_app
from isfl.engines.flower.messages import read
from isfl.engines.flower.node import Node, simulated_node
from isfl.errors import UserError
from isfl.federation import run_round, start
from isfl.federation.evaluation import Score
from isfl.federation.values import ClientProfile, ClientUpdate, RenewalReport, SecureAnswer
from isfl.problem.config import Config

KINDS: dict[str, type] = {
    "query": ClientProfile,
    "train": ClientUpdate,
    "train.renew": RenewalReport,
    "train.secure": SecureAnswer,
    "evaluate": Score,
}
NUMBERS: tuple[Any, ...] = (
    *(
        0,
        -1,
        7,
        2**62,
        -(2**62),
        1.5,
        float("nan"),
        float("inf"),
        1e308,
        -1e308,
        True,
        "",
        "isfl",
        "x" * 3000,
        b"\x00\xff",
    ),
    *(
        [],
        [0],
        [1.5] * 4,
        [float("nan")] * 4,
        [1e308] * 4,
        [-1.0] * 4,
        [0.1] * 100_000,
        ["a"],
        [b""],
        [True],
        "{}",
        "[" * 3000,
    ),
)
TYPES = ("float32", "float64", "int8", "object", "nonsense", "<U5", "")
SHAPES = ((), (0,), (1,), (3, 3), (2**40,), (-1,), (1,) * 70)


Files = dict[str, bytes]


@dataclass(frozen=True)
class Recorded:
    """The messages of small runs, each with the state of its client before it, and their replies by kind."""

    sent: list[tuple[Message, int, Files]]
    replies: list[tuple[str, RecordDict]]


class Recording(Federation):
    """A grid that keeps what goes over the wire."""

    def __init__(self, state: Path, clients: int, record: Recorded) -> None:
        super().__init__({1000 + client: simulated_node(client, state) for client in range(clients)})
        self.record = record

    def answer(self, node: Node, message: Message) -> Message | None:
        own = node.state / f"client-{node.client}"
        files = {str(file.relative_to(own)): file.read_bytes() for file in own.rglob("*") if file.is_file()}
        self.record.sent.append((message, node.client, files))
        reply = super().answer(node, message)
        assert reply is not None
        self.record.replies.append((message.metadata.message_type, copy.deepcopy(reply.content)))
        return reply


@cache
def recorded() -> Recorded:
    """Run two rounds with and without masks in this process and keep what went over the wire."""
    record = Recorded([], [])
    plain = config_of(MEASURED_AT_CLIENT, target={"kind": "uniform"}, training={"rounds": 2})
    for config in (plain, secured(training={"rounds": 2})):
        with tempfile.TemporaryDirectory(prefix="isfl-fuzz-nodes-") as name:
            state = Path(name)
            engine = engine_of(config, Recording(state, _clients(config), record), state)
            federated = start(config, engine)
            for _ in range(2):
                federated, _report = run_round(federated, config, engine)
    return record


def _clients(config: Config) -> int:
    return 3 if config.secure is None else 4


def changed_records(records: RecordDict, chance: random.Random) -> RecordDict:
    """Change some records of a message, as a hostile or broken sender may."""
    changed = copy.deepcopy(records)
    for _ in range(chance.choice((1, 1, 2, 3))):
        name = chance.choice(list(changed) or ["values"])
        match chance.randrange(8):
            case 0:
                changed.pop(name, None)
            case 1:
                changed[chance.choice((*changed, "other", ""))] = changed.pop(name, ConfigRecord())
            case 2:
                changed[name] = chance.choice((ConfigRecord(), MetricRecord({"a": 1}), ArrayRecord()))
            case _:
                _change(changed.get(name), chance)
    return changed


def _change(record: Any, chance: random.Random) -> None:
    if isinstance(record, ConfigRecord):
        key = chance.choice([*record, "other"])
        if chance.random() < 0.2:
            record.pop(key, None)
        else:
            record[key] = chance.choice(NUMBERS)
    elif isinstance(record, ArrayRecord) and record:
        key = chance.choice(list(record))
        record[key] = _other_array(record[key], chance)
        if chance.random() < 0.1:
            record["intruder"] = record[key]


def _other_array(array: Array, chance: random.Random) -> Array:
    match chance.randrange(5):
        case 0:
            return Array(array.dtype, array.shape, array.stype, changed_bytes(array.data, chance))
        case 1:
            return Array(chance.choice(TYPES), chance.choice(SHAPES), array.stype, array.data)
        case 2:
            return Array(array.dtype, array.shape, chance.choice(("", "numpy.ndarray", "pickle")), array.data)
        case 3:
            try:
                numbers = array.numpy().copy()
            except Exception:  # its bytes were changed before
                return array
            numbers.reshape(-1)[: chance.randint(0, 9)] = (
                chance.choice((0, 1)) if numbers.dtype.kind in "iub" else np.nan
            )
            return Array(numbers)
        case _:
            return Array(np.zeros(chance.choice(((), (0,), (3,), (1000, 1000))), chance.choice((np.float32, np.int64))))


def to_client(chance: random.Random, scratch: Path) -> None:
    """Give a client, as it was when it received a message, that message with changes, twice, or another one of its run.

    It has to answer each time, with a result or with a reason.
    """
    message, client, files = chance.choice(recorded().sent)
    if chance.random() < 0.1:
        message = chance.choice(recorded().sent)[0]  # one that it had before, or of another client, or too early
    records = changed_records(message.content, chance) if chance.random() < 0.9 else message.content
    node = restored(client, files, scratch)
    for _ in range(chance.choice((1, 2))):
        problem = delivered(message, records, node).get(PROBLEM)
    if isinstance(problem, ConfigRecord):
        raise UserError(str(problem["reason"]))


def restored(client: int, files: Files, scratch: Path) -> Node:
    """Return a node with the state of a client."""
    for name, content in files.items():
        file = scratch / f"client-{client}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return simulated_node(client, scratch)


def delivered(message: Message, records: RecordDict, node: Node) -> RecordDict:
    """Return the client app's answer to a message with these records."""
    given = copy.copy(message)
    given.__dict__["_content"] = copy.deepcopy(records)
    return client_app(lambda context: node)(given, Context(1, 1000, {}, RecordDict(), {})).content


def to_server(chance: random.Random, scratch: Path) -> None:
    """Read a changed reply as the server does."""
    kind, content = chance.choice(recorded().replies)
    value = read(KINDS[kind], changed_records(content, chance))
    if isinstance(value, str):
        raise UserError(value)


class Replaying(Federation):
    """A grid that also delivers replies twice, and replies to other messages."""

    def pull_messages(self, message_ids: Any) -> Any:
        found = list(super().pull_messages(message_ids))
        earlier = getattr(self, "earlier", [])
        self.earlier = [*earlier, *found][-6:]
        return [*earlier[:2], *found, *found]


def whole_round(chance: random.Random, scratch: Path) -> None:
    """Run two rounds in which one client's replies are changed: they finish, and only that client is refused.

    With masks, a client can keep a whole round from its sum; the model then stays what it was.
    """
    masked = chance.random() < 0.4
    config = secured() if masked else config_of(chance.choice(("isfl", "fedavg", "moon")), training={"rounds": 2})

    def meddle(client: int, message: Message, reply: Message) -> Message:
        if client == 1 and message.metadata.message_type != "query":
            reply.__dict__["_content"] = changed_records(reply.content, chance)
        return reply

    nodes = {1000 + client: simulated_node(client, scratch) for client in range(_clients(config))}
    grid = Replaying(nodes, meddle)
    engine = engine_of(config, grid)
    state = start(config, engine)
    for _ in range(2):
        state, report = run_round(state, config, engine)
        assert set(report.refused) <= {1}, report.refused
    assert all(bool(value.isfinite().all()) for value in state.model.values())
    if report.refused:
        raise UserError(next(iter(report.refused.values())))
