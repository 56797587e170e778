"""Sending messages to nodes and taking in their answers, bounded in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode

from isfl.engines.flower.client import PROBLEM
from isfl.engines.flower.wire import decode
from isfl.errors import UserError
from isfl.federation.codec import CodecError

PAUSES = (0.05, 1.0)
"""Seconds between two looks for answers: short at first, longer and longer while none comes."""
LOOK = 2.0
"""Seconds between two looks at who is connected."""

UNAVAILABLE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""What the SuperLink answers in place of a node that is gone."""

Kind = TypeVar("Kind")


class StoppedError(Exception):
    """Somebody wants the run to end; it can be resumed."""


class NoReply(str):
    """Why nothing came from a node."""

    __slots__ = ()


Answer = RecordDict | str
"""What came from a node, or a word that says why it is of no use."""


class Grid(Protocol):
    """What is used of Flower's grid."""

    def get_node_ids(self) -> Iterable[int]: ...
    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]: ...
    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]: ...


@dataclass(frozen=True)
class Connection:
    """How to reach the nodes of one run."""

    grid: Grid
    run: str
    """The run's key: clients keep their memories under it."""
    tell: Callable[[str], None] = lambda line: None
    """Is given a line when there is something a person should know now."""
    stopped: Callable[[], bool] = lambda: False
    """Whether the run was asked to end."""
    simulated: Path | None = None
    """Where simulated clients keep what they remember, for a simulation may look at it."""

    def pause(self, seconds: float) -> None:
        if self.stopped():
            raise StoppedError("the run was asked to stop")
        time.sleep(seconds)


def push(grid: Grid, messages: Mapping[int, Message]) -> dict[str, int]:
    """Send one message to each node; the number of each message, with the node it went to."""
    numbers = list(grid.push_messages(list(messages.values())))
    if len(numbers) != len(messages):
        raise UserError("the SuperLink did not take all messages; is it still running?")
    return dict(zip(numbers, messages, strict=True))


def pull(grid: Grid, waiting: dict[str, int]) -> Iterator[tuple[int, Answer]]:
    """What has come by now; those who answered are taken out of `waiting`."""
    for message in grid.pull_messages(list(waiting)):
        node = waiting.pop(message.metadata.reply_to_message_id, None)
        if node is not None:
            yield node, _content(message)


def replies(
    connection: Connection, sent: Mapping[str, int], patience: float, look: Callable[[], set[int]]
) -> Iterator[tuple[int, Answer]]:
    """Answers of nodes as they come, for at most `patience` seconds; nodes that `look` no longer finds have left."""
    waiting, end, looked = dict(sent), time.monotonic() + patience, time.monotonic()
    pause, longest = PAUSES
    while waiting:
        before = len(waiting)
        yield from pull(connection.grid, waiting)
        pause = min(1.5 * pause, longest) if len(waiting) == before else PAUSES[0]
        if time.monotonic() > end:
            for node in waiting.values():
                yield node, NoReply(f"did not answer within {patience:.0f} s")
            return
        if time.monotonic() > looked + LOOK:
            present, looked = look(), time.monotonic()
            for number in [number for number, node in waiting.items() if node not in present]:
                yield waiting.pop(number), NoReply("left before it answered")
        if waiting:
            connection.pause(pause)


def read(kind: type[Kind], answer: Answer) -> Kind | str:
    """The value in an answer, or why there is none."""
    if isinstance(answer, str):
        return answer
    try:
        return decode(kind, answer)
    except CodecError as error:
        return str(error)


def _content(message: Message) -> Answer:
    if message.has_error():
        code, reason = message.error.code, str(message.error.reason or "").strip().splitlines()
        if code in UNAVAILABLE:
            return NoReply("left before it answered")
        return f"failed: {reason[-1] if reason else f'error {code}'}"
    problem = message.content.get(PROBLEM)
    if isinstance(problem, ConfigRecord):
        return str(problem.get("reason", "it did not say why"))
    return message.content
