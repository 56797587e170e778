"""Messages to nodes and their replies, with time limits."""

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
"""Shortest and longest time in seconds between two polls for replies; it grows while none arrives."""
REFRESH_SECONDS = 2.0
"""Time between two polls for connected nodes."""

UNAVAILABLE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""Error codes of the SuperLink for a node that is gone."""

Kind = TypeVar("Kind")


class StoppedError(Exception):
    """The user stopped the run; it can be resumed."""


class NoReply(str):
    """The reason why a node did not reply."""

    __slots__ = ()


class TimedOut(NoReply):
    """It did not reply in time."""

    __slots__ = ()


class NotSent(NoReply):
    """It was sent nothing."""

    __slots__ = ()


Answer = RecordDict | str
"""The content of a reply, or the reason why there is none."""


class Grid(Protocol):
    """The methods of Flower's grid that isfl uses."""

    def get_node_ids(self) -> Iterable[int]: ...
    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]: ...
    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]: ...


@dataclass(frozen=True)
class Connection:
    """The connection to the nodes of one run."""

    grid: Grid
    run: str
    """The run's key; nodes store client states under it."""
    tell: Callable[[str], None] = lambda line: None
    """Shows one line to the user."""
    stopped: Callable[[], bool] = lambda: False
    """Whether the user stopped the run."""
    simulated: Path | None = None
    """Directory of the simulated clients' states, which a simulation may read; None on a deployment."""

    def pause(self, seconds: float) -> None:
        if self.stopped():
            raise StoppedError("the run was stopped")
        time.sleep(seconds)


@dataclass(frozen=True)
class Sent:
    """Tasks that were sent and not yet answered."""

    messages: dict[str, int]
    """Message id -> node; an id leaves with its reply."""
    client_of: dict[int, int]
    absent: list[int]
    """Clients that are not connected."""

    def add(self, more: Sent) -> None:
        """Wait for these, too."""
        self.messages.update(more.messages)
        self.client_of.update(more.client_of)


def push(grid: Grid, messages: Mapping[int, Message]) -> dict[str, int]:
    """Send one message to each node; return message id -> node."""
    numbers = list(grid.push_messages(list(messages.values())))
    if len(numbers) != len(messages):
        raise UserError("the SuperLink did not accept all messages; is it still running?")
    return dict(zip(numbers, messages, strict=True))


def pull(grid: Grid, waiting: dict[str, int]) -> Iterator[tuple[int, Answer]]:
    """Yield the replies that have arrived; remove them from `waiting`."""
    for message in grid.pull_messages(list(waiting)):
        node = waiting.pop(message.metadata.reply_to_message_id, None)
        if node is not None:
            yield node, _content(message)


def replies(
    connection: Connection,
    waiting: dict[str, int],
    patience: float,
    connected: Callable[[], set[int]],
    proceed: Callable[[], bool] | None = None,
) -> Iterator[tuple[int, Answer]]:
    """Yield replies as they arrive, for at most `patience` seconds.

    `waiting` maps message ids to nodes; an id leaves it with its reply. `connected` returns the connected nodes.
    `proceed` is called before every poll and says whether to wait on; it may add to `waiting`.
    """
    end, looked = time.monotonic() + patience, time.monotonic()
    pause, longest = PAUSES
    while proceed() if proceed is not None else waiting:
        before = len(waiting)
        yield from pull(connection.grid, waiting)
        if time.monotonic() > end:
            for node in list(waiting.values()):
                yield node, TimedOut(f"did not answer within {patience:.0f} s")
            return
        if time.monotonic() > looked + REFRESH_SECONDS:
            present, looked = connected(), time.monotonic()
            for number in [number for number, node in waiting.items() if node not in present]:
                yield waiting.pop(number), NoReply("left before it answered")
        if len(waiting) < before:
            pause = PAUSES[0]
        else:
            connection.pause(min(pause, max(end - time.monotonic(), 0.0)))
            pause = min(1.5 * pause, longest)


def read(kind: type[Kind], answer: Answer) -> Kind | str:
    """Return the value in a reply, or the reason why there is none."""
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
        if code == ErrorCode.INVALID_FAB:
            return "its operator does not trust this app (--trusted-entities of the SuperNode; isfl flower sign)"
        return f"failed: {reason[-1] if reason else f'error {code}'}"
    problem = message.content.get(PROBLEM)
    if isinstance(problem, ConfigRecord):
        return str(problem.get("reason", "failed without a reason"))
    return message.content
