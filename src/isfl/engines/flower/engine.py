"""The engine whose clients are Flower nodes: simulated, or on other machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from isfl.engines.flower.client import HEAD, Evaluation, public_record
from isfl.engines.flower.messages import Answer, Connection, NoReply, push, read, replies
from isfl.engines.flower.node import recall, simulated_node
from isfl.engines.flower.node_registry import PATIENCE, NodeRegistry
from isfl.engines.flower.wire import arrays_of, encode
from isfl.engines.local.worker import Worker
from isfl.engines.server import ServerCompute
from isfl.errors import UserError
from isfl.federation.client import observe_client
from isfl.federation.client_state import StoredState
from isfl.federation.evaluation import ClassScores, Score
from isfl.federation.preparation import prepared
from isfl.federation.values import (
    ClientMemory,
    ClientProfile,
    ClientUpdate,
    FederationState,
    Observation,
    Refusal,
    RenewalReport,
    RenewTask,
    TrainTask,
    Weights,
)
from isfl.problem.config import Config
from isfl.problem.problem import Problem
from isfl.randomness import Purpose, generator

RENEW = f"{MessageType.TRAIN}.renew"

Kind = TypeVar("Kind", ClientUpdate, RenewalReport, Score)


@dataclass(frozen=True)
class Sent:
    """Tasks that were sent and not yet answered."""

    messages: dict[str, int]
    """Message id -> node."""
    client_of: dict[int, int]
    absent: list[int]
    """Clients that are not connected."""


class FlowerEngine:
    """Sends tasks to nodes and receives their replies; no wait is longer than `config.flower` allows."""

    def __init__(self, problem: Problem, config: Config, connection: Connection, workers: int = 1) -> None:
        self.config, self.connection, self.problem = config, connection, problem
        self.client_count = config.flower.clients or len(problem.clients)
        worker = Worker(prepared(problem.model, config), problem.public, problem.test, config, workers=workers)
        real = config.flower.own_data
        self.server = ServerCompute(worker, config, self.client_count, workers, real_clients=real)
        if config.flower.min_clients > self.client_count:
            raise UserError(
                f"flower.min_clients = {config.flower.min_clients}, but there are {self.client_count} clients"
            )
        self.registry = NodeRegistry(connection, self.client_count, self._question, config.flower.reply_seconds)
        self._round = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.close()

    @property
    def client_states(self) -> Mapping[int, StoredState]:
        """Empty: every node keeps its own state."""
        return {}

    def restore(self, state: FederationState, client_states: Mapping[int, StoredState]) -> None:
        """Wait until the clients that introduced themselves earlier in this run are connected again.

        Without this wait, the interrupted round would be repeated with fewer clients, and other bits.
        """
        self.registry.sizes = dict(enumerate(int(size) for size in state.sizes))
        self.registry.counts = {} if state.counts is None else dict(enumerate(state.counts))
        self.registry.rounds_begun, limits = True, self.config.flower
        self.registry.gather(self.client_count, limits.wait_seconds, "clients to reconnect", limits.min_clients)

    # ------------------------------------------------------------ the steps of a round

    def introduce(self) -> Sequence[ClientProfile]:
        """Wait until all clients are connected; return their profiles."""
        self.registry.gather(self.client_count, self.config.flower.wait_seconds, "clients before the first round")
        self.registry.rounds_begun = True
        return [self.registry.profiles[client] for client in sorted(self.registry.profiles)]

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate | Refusal]:
        self._round, limits = tasks[0].round, self.config.flower
        self.registry.gather(limits.min_clients, limits.wait_seconds, f"clients for round {self._round}")
        return list(self._receive(ClientUpdate, self._send(MessageType.TRAIN, tasks)))

    def renew(self, tasks: Sequence[RenewTask]) -> Sequence[RenewalReport | Refusal]:
        return list(self._receive(RenewalReport, self._send(RENEW, tasks)))

    def evaluate(self, model: Weights) -> tuple[ClassScores, Mapping[int, Score]]:
        evaluators = self._evaluators()
        sent = self._send(MessageType.EVALUATE, [Evaluation(client, model) for client in evaluators])
        (found,) = self.server.outcomes(model, "test")  # while the clients evaluate
        scores = {}
        for client, answer in self._answers(sent):
            score = read(Score, answer)
            if isinstance(score, Score) and not self._plausible(score, client):
                score = "has impossible scores"
            if isinstance(score, str):
                self.connection.tell(f"evaluation: client {client}: {score}")
            else:
                scores[client] = score
        return self.server.standard(found), scores

    def observe(self, tasks: Sequence[TrainTask]) -> Mapping[int, Observation]:
        """Return what the server may know of clients: everything in a simulation, else what follows from replies."""
        seen = {}
        for task in tasks:
            counts, memory = self.registry.counts.get(task.client), ClientMemory()
            if self.connection.simulated is not None:
                node = simulated_node(task.client, self.connection.simulated)
                memory = recall(node, self.connection.run, self._round)
                counts = self.problem.clients[task.client].class_counts.astype(np.float64)
            unknown = self.config.scheme.sampling.from_local_model and memory.probabilities is None
            if counts is not None and self._may_be_seen and not unknown:
                seen[task.client] = observe_client(task, counts, self.config, memory)
        return seen

    @property
    def _may_be_seen(self) -> bool:
        """Whether the server has true counts: a client does not draw by noised ones."""
        return self.connection.simulated is not None or not self.config.hides_counts

    def _evaluators(self) -> list[int]:
        """Return the connected clients among all, or among a random share of all.

        No client evaluates if class counts are private: accuracies on a client's data can reveal them.
        """
        if self.config.hides_counts and self.connection.simulated is None:
            return []
        share, count = self.config.flower.evaluate_share, self.client_count
        rng = generator(self.config.seed, Purpose.EVALUATION, round=self._round)
        chosen = range(count) if share == 1 else rng.choice(count, round(share * count), replace=False)
        return sorted(self.registry.node_of.keys() & {int(client) for client in chosen})

    def _plausible(self, score: Score, client: int) -> bool:
        possible = 0 <= score.correct <= score.correct_top5 <= score.samples
        return possible and score.samples == self.registry.sizes[client]

    # ------------------------------------------------------------ messages

    def _send(self, kind: str, tasks: Sequence[Any]) -> Sent:
        """Send each task to its client if that is connected; the common model is encoded once."""
        model = {id(tasks[0].model): arrays_of(tasks[0].model)} if tasks else {}
        head, messages, client_of, absent = self._head(), {}, {}, []
        for task in tasks:
            node = self.registry.node_of.get(task.client)
            if node is None:
                absent.append(task.client)
                continue
            content = encode(task, model)
            content[HEAD] = head
            messages[node] = Message(content, node, kind, ttl=self.config.flower.reply_seconds + PATIENCE)
            client_of[node] = task.client
        return Sent(push(self.connection.grid, messages) if messages else {}, client_of, absent)

    def _receive(self, kind: type[Kind], sent: Sent) -> Iterator[Kind | Refusal]:
        """Yield the clients' results as they arrive; the message identifies the client, not its content."""
        for client, answer in self._answers(sent):
            value = read(kind, answer)
            if isinstance(value, str):
                yield Refusal(client, value)
            elif getattr(value, "client", client) != client:
                yield Refusal(client, f"answered as client {getattr(value, 'client', None)}")
            else:
                yield value

    def _answers(self, sent: Sent) -> Iterator[tuple[int, Answer]]:
        for client in sent.absent:
            yield client, "is not connected"
        for node, answer in replies(
            self.connection, sent.messages, self.config.flower.reply_seconds, self.registry.refresh
        ):
            self.registry.note(node, silent=isinstance(answer, NoReply))
            yield sent.client_of[node], answer

    def _question(self) -> RecordDict:
        content = RecordDict({HEAD: self._head()})
        if self.config.flower.own_data and self.config.measures_at_client:
            content["public"] = public_record(self.problem.public)
        return content

    def _head(self) -> ConfigRecord:
        return ConfigRecord(
            {
                "run": self.connection.run,
                "config": self.config.model_dump_json(),
                "classes": list(self.problem.class_names),
                "shape": [int(size) for size in self.problem.public.inputs.shape[1:]],
            }
        )
