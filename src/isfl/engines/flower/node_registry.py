"""The connected nodes and the client of each. Nodes may leave, return, or claim the same client."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Set

from flwr.app import Message, MessageType, RecordDict

from isfl.engines.flower.messages import REFRESH_SECONDS, Connection, NoReply, pull, push, read
from isfl.errors import UserError
from isfl.federation.values import ClientProfile
from isfl.theory.arrays import Array

SILENT = 5.0
"""Seconds of waiting before the user is informed."""
PATIENCE = 120.0
"""Seconds until a node that could not take part is asked again; also how long a message outlives the wait for it."""


class NodeRegistry:
    """Maps connected clients to nodes (`node_of`).

    A new node receives `question()` and has `seconds` to introduce itself.
    """

    def __init__(
        self, connection: Connection, clients: int, question: Callable[[], RecordDict], seconds: float
    ) -> None:
        self.connection, self.clients, self.question, self.seconds = connection, clients, question, seconds
        self.rounds_begun = False
        """Whether there is a run to resume."""
        self.node_of: dict[int, int] = {}
        self.profiles: dict[int, ClientProfile] = {}
        self.sizes: dict[int, int] = {}
        """Samples of each client, as first announced; they must not change."""
        self.counts: dict[int, Array] = {}
        self._asked: dict[str, int] = {}
        """Unanswered questions: message id -> node."""
        self._deadline: dict[int, float] = {}
        self._silent: set[int] = set()
        """Nodes that did not reply to their last message in time."""
        self._seconds: dict[int, ClientProfile] = {}
        """Nodes that claim a client that has a node: it may have reconnected while its old node is dead."""
        self._strangers: dict[int, float] = {}
        """Nodes that cannot take part -> the time at which they are asked again."""
        self._reasons: dict[int, str] = {}
        """Connected nodes that cannot take part -> why."""

    def gather(
        self,
        wanted: int,
        seconds: float,
        purpose: str,
        least: int | None = None,
        of: Set[int] | None = None,
        patient: bool = True,
    ) -> None:
        """Wait up to `seconds` until `wanted` clients are connected; then `least` are enough, if given.

        Only clients in `of` count, if given. Without `patient`, stop waiting when every connected node has said which
        client it is, or has been waited for in vain before.
        """
        began, told = time.monotonic(), False
        while True:
            self.refresh()
            connected = len(self.node_of) if of is None else len(self.node_of.keys() & of)
            if connected >= wanted or not (patient or set(self._asked.values()) - self._silent):
                return
            waited, there = time.monotonic() - began, f"{connected} of {wanted} are connected"
            if not told and waited > SILENT:
                self.connection.tell(f"waiting for {purpose}: {there}")
                told = True
            if waited > seconds and least is not None and len(self.node_of) >= least:
                self.connection.tell(f"waited {seconds:.0f} s for {purpose}: {there}, continuing")
                self._silent |= set(self._asked.values())
                return
            if waited > seconds:
                then = "resume with isfl resume" if self.rounds_begun else "run again"
                raise UserError(
                    f"waited {seconds:.0f} s for {purpose}: {there} (flower.wait_seconds, flower.min_clients); start "
                    f"the others and {then}{self._refusals()}"
                )
            self.connection.pause(min(REFRESH_SECONDS, seconds / 4))

    def refresh(self) -> set[int]:
        """Return the connected nodes; drop those that left and send the question to new ones, without waiting."""
        present = set(self.connection.grid.get_node_ids())
        now = time.monotonic()
        self._strangers = {node: until for node, until in self._strangers.items() if node in present and until > now}
        self._silent &= present
        self._reasons = {node: reason for node, reason in self._reasons.items() if node in present}
        self.node_of = {client: node for client, node in self.node_of.items() if node in present}
        self._ask(present)
        for node, answer in pull(self.connection.grid, self._asked):
            self._receive(node, read(ClientProfile, answer))
        for node, profile in list(self._seconds.items()):
            if node not in present:
                del self._seconds[node]
            elif self.node_of.get(profile.client) in {None, *self._silent}:
                self.node_of[profile.client] = node
                del self._seconds[node]
        return present

    def _refusals(self) -> str:
        counted = Counter(self._reasons.values())
        return "".join(f"; {nodes} connected cannot take part: {reason}" for reason, nodes in counted.items())

    def note(self, node: int, silent: bool) -> None:
        """Record whether a node replied."""
        (self._silent.add if silent else self._silent.discard)(node)

    def _ask(self, present: set[int]) -> None:
        for number, node in list(self._asked.items()):
            if node not in present:
                del self._asked[number]
            elif time.monotonic() > self._deadline[node]:
                del self._asked[number]
                self.connection.tell(
                    f"node {node} did not introduce itself within {self.seconds:.0f} s; asking again "
                    "(if that does not help, restart its SuperNode)"
                )
        known = {*self.node_of.values(), *self._seconds, *self._strangers, *self._asked.values()}
        if new := sorted(present - known):
            content, lives = self.question(), self.seconds + PATIENCE
            self._asked |= push(
                self.connection.grid, {node: Message(content, node, MessageType.QUERY, ttl=lives) for node in new}
            )
            self._deadline |= dict.fromkeys(new, time.monotonic() + self.seconds)

    def _receive(self, node: int, profile: ClientProfile | str) -> None:
        self.note(node, silent=isinstance(profile, NoReply))
        if isinstance(profile, NoReply):
            return  # the next refresh asks again
        self._reasons.pop(node, None)
        reason = profile if isinstance(profile, str) else self._unfit(profile)
        if isinstance(profile, str) or reason is not None:
            self._strangers[node], self._reasons[node] = time.monotonic() + PATIENCE, str(reason)
            self.connection.tell(f"node {node} cannot take part: {reason}")
        elif profile.client in self.node_of:
            self._seconds[node] = profile
            self.connection.tell(f"node {node} claims to be client {profile.client}, which is connected: it must wait")
        else:
            self.node_of[profile.client] = node
            self.profiles[profile.client] = profile
            self.sizes.setdefault(profile.client, profile.num_samples)
            if profile.class_counts is not None:
                self.counts.setdefault(profile.client, profile.class_counts)

    def _unfit(self, profile: ClientProfile) -> str | None:
        client = profile.client
        if not 0 <= client < self.clients:
            return f"its partition-id is {client}, but there are {self.clients} clients"
        if self.sizes.get(client, profile.num_samples) != profile.num_samples:
            return f"client {client} had {self.sizes[client]} samples and now has {profile.num_samples}"
        return None
