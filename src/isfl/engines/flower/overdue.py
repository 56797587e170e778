"""Answers that come after their round has closed (`[stragglers]`): they are counted when they arrive.

A node with an overdue answer is still at work. It is sent no other task meanwhile: a slow node would pile up the tasks
of closed rounds and never be in time again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

from isfl.engines.flower.messages import Answer, NoReply, pull
from isfl.engines.flower.node_registry import NodeRegistry
from isfl.federation.values import ClientUpdate, LateAnswer, Refusal


class Pending(NamedTuple):
    """A message of a closed round without an answer."""

    message: str
    round: int
    client: int
    until: float
    """The time at which it is forgotten."""


class Overdue:
    """The nodes that are still at work for closed rounds; each is forgotten after the `seconds` it is added with."""

    def __init__(self, registry: NodeRegistry, read: Callable[[int, Answer], ClientUpdate | Refusal]) -> None:
        self.registry, self.read = registry, read
        self._pending: dict[int, Pending] = {}
        """By node."""
        self._arrived: list[LateAnswer] = []

    def add(self, messages: Mapping[str, int], clients: Mapping[int, int], round: int, seconds: float) -> None:
        """Wait for these messages (id -> node) of a round that has closed; `clients` has the client of each node."""
        until = time.monotonic() + seconds
        self._pending |= {node: Pending(number, round, clients[node], until) for number, node in messages.items()}

    @property
    def nodes(self) -> Set[int]:
        """The nodes that are still at work."""
        return self._pending.keys()

    def arrived(self) -> list[LateAnswer]:
        """Return the answers that have come since the last call, of any closed round."""
        self.poll()
        arrived, self._arrived = self._arrived, []
        return arrived

    def poll(self) -> None:
        """Find out which nodes have answered; `arrived` returns their answers later."""
        now = time.monotonic()
        self._pending = {node: pending for node, pending in self._pending.items() if pending.until > now}
        if not self._pending:
            return
        waiting = {pending.message: node for node, pending in self._pending.items()}
        for node, answer in list(pull(self.registry.connection.grid, waiting)):
            pending = self._pending.pop(node)
            self.registry.note(node, silent=isinstance(answer, NoReply))
            value = self.read(pending.client, answer)
            if isinstance(value, ClientUpdate):
                self._arrived.append(LateAnswer(pending.client, pending.round, value))
