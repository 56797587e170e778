"""The engine whose clients are Flower nodes: simulated, or on other machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from isfl.engines.flower.client import HEAD, Evaluation, public_record
from isfl.engines.flower.messages import Answer, Connection, NoReply, NotSent, Sent, TimedOut, push, read, replies
from isfl.engines.flower.node import recall, simulated_node
from isfl.engines.flower.node_registry import PATIENCE, NodeRegistry
from isfl.engines.flower.overdue import Overdue
from isfl.engines.flower.wire import arrays_of, encode
from isfl.engines.local.worker import Worker
from isfl.engines.server import ServerCompute
from isfl.errors import UserError
from isfl.federation.admission import update_check
from isfl.federation.client import observe_client
from isfl.federation.client_state import StoredState
from isfl.federation.evaluation import ClassScores, Score
from isfl.federation.participation import participant_count
from isfl.federation.preparation import prepared
from isfl.federation.stragglers import UsableAnswers
from isfl.federation.values import (
    ClientMemory,
    ClientProfile,
    ClientUpdate,
    FederationState,
    LateAnswer,
    Observation,
    Refusal,
    RenewalReport,
    RenewTask,
    SecureAnswer,
    SecureTask,
    TrainAnswer,
    TrainTask,
    Weights,
)
from isfl.problem.config import Config
from isfl.problem.problem import Problem

RENEW = f"{MessageType.TRAIN}.renew"
NOT_CONNECTED = NotSent("is not connected")
SECURE = f"{MessageType.TRAIN}.secure"

Kind = TypeVar("Kind", ClientUpdate, RenewalReport, SecureAnswer, Score)


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
        self._introduced = False
        """Whether this process has waited for clients to introduce themselves."""
        self._overdue = Overdue(self.registry, lambda client, answer: self._value(ClientUpdate, client, answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.close()

    @property
    def client_states(self) -> Mapping[int, StoredState]:
        """Empty: every node keeps its own state."""
        return {}

    @property
    def real_time(self) -> bool:
        """Whether the wall clock decides who is late: not in a simulation, and not with simulated latencies."""
        stragglers = self.config.stragglers
        return self.connection.simulated is None and (stragglers is None or stragglers.simulated is None)

    def restore(self, state: FederationState, client_states: Mapping[int, StoredState]) -> None:
        """Wait until the clients that introduced themselves earlier in this run are connected again.

        Without this wait, the interrupted round would be repeated with fewer clients, and other bits.
        """
        self._round, seen = state.round, state.clients.tolist()
        self.registry.sizes = dict(zip(seen, state.sizes.tolist(), strict=True))
        self.registry.counts = {} if state.counts is None else dict(zip(seen, state.counts, strict=True))
        self.registry.rounds_begun, limits = True, self.config.flower
        self.registry.gather(len(seen), limits.wait_seconds, "clients to reconnect", limits.min_clients, of=set(seen))

    # ------------------------------------------------------------ the steps of a round

    @property
    def num_clients(self) -> int:
        return self.client_count

    def introduce(self, clients: Sequence[int] | None = None) -> Sequence[ClientProfile | Refusal]:
        """Return what clients say of themselves; all of them must be connected, or, of some, `min_clients`.

        The first ones that a process asks for have `wait_seconds` to connect. Afterwards it waits only for the answers
        of connected nodes, once and not longer than for other answers: a node then says which client it is.
        """
        limits, asked = self.config.flower, range(self.client_count) if clients is None else clients
        if len(asked) == self.client_count and self.config.target.from_all_clients:
            self.registry.gather(self.client_count, limits.wait_seconds, "clients before the first round")
        else:
            self.registry.gather(limits.min_clients, limits.wait_seconds, "clients")
            patient = not self._introduced
            seconds = limits.wait_seconds if patient else min(limits.wait_seconds, self._patience)
            self.registry.gather(len(asked), seconds, "newly chosen clients", 0, set(asked), patient=patient)
        self._introduced = self.registry.rounds_begun = True
        known = self.registry.profiles
        return [known.get(client, Refusal(client, NOT_CONNECTED)) for client in asked]

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[TrainAnswer]:
        self._gather(tasks[0].round if tasks else self._round + 1)
        if self.config.stragglers is not None and self.real_time:
            return self._train_until_closed(tasks)
        return list(self._receive(ClientUpdate, self._send(MessageType.TRAIN, tasks)))

    def _train_until_closed(self, tasks: Sequence[TrainTask]) -> Sequence[TrainAnswer]:
        """Receive answers until enough are usable or the deadline has passed; all others are late.

        A node that is still at work for a closed round receives its task when it has answered.
        """
        if not tasks:
            return self._overdue.arrived()
        refusal = update_check(tasks[0].model, self.registry.sizes, self.config, self.server.facts)
        usable = UsableAnswers(participant_count(self.config, self.client_count))
        unsent, sent = {task.client: task for task in tasks}, Sent({}, {}, [])
        answers: list[TrainAnswer] = []

        def proceed() -> bool:
            answers.extend(self._overdue.arrived())
            if usable.complete:
                return False
            free = [client for client in unsent if not self._is_busy(client)]
            more = self._send(MessageType.TRAIN, [unsent.pop(client) for client in free])
            sent.add(more)
            answers.extend(Refusal(client, NOT_CONNECTED, sent=False) for client in more.absent)
            return bool(sent.messages or unsent)

        for node, answer in self._replies(sent, proceed):
            client = sent.client_of[node]
            if isinstance(answer, TimedOut):
                continue
            value: TrainAnswer = self._value(ClientUpdate, client, answer)
            if usable.complete:  # it arrived together with the last one that was needed
                value = LateAnswer(client, self._round, value if isinstance(value, ClientUpdate) else None)
            usable.heard(isinstance(value, ClientUpdate) and refusal(value) is None)
            answers.append(value)
        answers.extend(LateAnswer(client, self._round, sent=False) for client in unsent)
        answers.extend(LateAnswer(sent.client_of[node], self._round) for node in sent.messages.values())
        self._overdue.add(sent.messages, sent.client_of, self._round, self.config.flower.reply_seconds)
        return answers

    def renew(self, tasks: Sequence[RenewTask]) -> Sequence[RenewalReport | Refusal]:
        return list(self._receive(RenewalReport, self._send(RENEW, tasks)))

    def exchange(self, tasks: Sequence[SecureTask]) -> Sequence[SecureAnswer | Refusal | LateAnswer]:
        if tasks[0].round != self._round:  # the first phase of the round
            self._gather(tasks[0].round)
        self._overdue.poll()
        late = [LateAnswer(task.client, self._round, sent=False) for task in tasks if self._is_busy(task.client)]
        sent = self._send(SECURE, [task for task in tasks if not self._is_busy(task.client)])
        return [*self._receive(SecureAnswer, sent), *late]

    def evaluate(self, model: Weights, clients: Sequence[int] | None = None) -> tuple[ClassScores, Mapping[int, Score]]:
        evaluators = self._evaluators(range(self.client_count) if clients is None else clients)
        sent = self._send(MessageType.EVALUATE, [Evaluation(client, model) for client in evaluators])
        found = self.server.outcomes(model, {"test": None})["test"]  # while the clients evaluate
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
                counts = self.problem.clients.class_counts(task.client).astype(np.float64)
            unknown = self.config.scheme.sampling.from_local_model and memory.probabilities is None
            if counts is not None and self._may_be_seen and not unknown:
                seen[task.client] = observe_client(task, counts, self.config, memory)
        return seen

    @property
    def _may_be_seen(self) -> bool:
        """Whether the server has true counts: a client does not draw by noised ones."""
        return self.connection.simulated is not None or not self.config.hides_counts

    def _evaluators(self, chosen: Sequence[int]) -> list[int]:
        """Return those that are connected and not still training.

        No client evaluates if class counts are private: accuracies on a client's data can reveal them.
        """
        if self.config.hides_counts and self.connection.simulated is None:
            return []
        return sorted(k for k in self.registry.node_of.keys() & set(chosen) if not self._is_busy(k))

    def _is_busy(self, client: int) -> bool:
        """Whether the client's node is still at work for a closed round."""
        return self.registry.node_of.get(client) in self._overdue.nodes

    def _plausible(self, score: Score, client: int) -> bool:
        possible = 0 <= score.correct <= score.correct_top5 <= score.samples
        return possible and score.samples == self.registry.sizes[client]

    # ------------------------------------------------------------ messages

    def _gather(self, round: int) -> None:
        """Wait for clients before a round begins."""
        self._round, limits = round, self.config.flower
        self.registry.gather(limits.min_clients, limits.wait_seconds, f"clients for round {round}")

    def _send(self, kind: str, tasks: Sequence[Any]) -> Sent:
        """Send each task to its client if that is connected; the common model is encoded once."""
        common = getattr(tasks[0], "model", None) if tasks else None
        model = {} if common is None else {id(common): arrays_of(common)}
        head, messages, client_of, absent = self._head(), {}, {}, []
        lives = max(self.config.flower.reply_seconds, self._patience) + PATIENCE
        for task in tasks:
            node = self.registry.node_of.get(task.client)
            if node is None:
                absent.append(task.client)
                continue
            content = encode(task, model)
            content[HEAD] = head
            messages[node] = Message(content, node, kind, ttl=lives)
            client_of[node] = task.client
        return Sent(push(self.connection.grid, messages) if messages else {}, client_of, absent)

    def _receive(self, kind: type[Kind], sent: Sent) -> Iterator[Kind | Refusal]:
        """Yield the clients' results as they arrive."""
        for client, answer in self._answers(sent):
            yield self._value(kind, client, answer)

    def _value(self, kind: type[Kind], client: int, answer: Answer) -> Kind | Refusal:
        """Return the result in an answer; the message identifies the client, not its content."""
        value = read(kind, answer)
        if isinstance(value, str):
            return Refusal(client, value, sent=not isinstance(value, NotSent))
        if getattr(value, "client", client) != client:
            return Refusal(client, f"answered as client {getattr(value, 'client', None)}")
        return value

    def _answers(self, sent: Sent) -> Iterator[tuple[int, Answer]]:
        for client in sent.absent:
            yield client, NOT_CONNECTED
        for node, answer in self._replies(sent):
            yield sent.client_of[node], answer

    def _replies(self, sent: Sent, proceed: Callable[[], bool] | None = None) -> Iterator[tuple[int, Answer]]:
        """Yield the replies of nodes and record which of them were silent."""
        for node, answer in replies(self.connection, sent.messages, self._patience, self.registry.refresh, proceed):
            self.registry.note(node, silent=isinstance(answer, NoReply))
            yield node, answer

    @property
    def _patience(self) -> float:
        """The longest wait for the answers to one kind of task, in seconds."""
        stragglers = self.config.stragglers if self.real_time else None
        deadline = None if stragglers is None else stragglers.deadline
        return self.config.flower.reply_seconds if deadline is None else deadline

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
