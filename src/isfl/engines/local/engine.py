"""An engine with all clients on this machine, in this process or in worker processes, with the same bits."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
from torch import nn

from isfl.data.dataset import Dataset
from isfl.data.population import Population, StoredPopulation
from isfl.engines.local.worker import Worker
from isfl.engines.server import ServerCompute
from isfl.errors import UserError
from isfl.federation.client import introduce, observe_client
from isfl.federation.client_state import StoredState, recall
from isfl.federation.evaluation import ClassScores, Score, score
from isfl.federation.preparation import prepared
from isfl.federation.secure.client import answer_phase
from isfl.federation.secure.tables import Phase
from isfl.federation.settings import Settings
from isfl.federation.values import (
    ClientMemory,
    ClientProfile,
    ClientUpdate,
    FederationState,
    Observation,
    Refusal,
    RenewalReport,
    RenewTask,
    RoundSecret,
    SecureAnswer,
    SecureTask,
    TrainTask,
    Weights,
)
from isfl.randomness import Purpose, generator


class LocalEngine:
    """Clients as data sets in memory; what clients remember is in `client_states` and in files.

    Parameters
    ----------
    model
        The model that all clients train. It is copied; the federation starts from its weights.
    clients
        One data set per client.
    public
        D_L, the public set.
    test
        D_S, the balanced test set.
    settings
        Seed, scheme, training and target of the federation.
    workers
        Number of processes that share the work; results do not depend on it.
    directory
        Where to keep the weights that clients remember (default: a temporary directory, removed with the engine).

    Examples
    --------
    >>> import torch
    >>> from isfl import Dataset, LocalEngine
    >>> from isfl.federation import Settings, run_round, start
    >>> def samples(*counts):
    ...     labels = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    ...     return Dataset(torch.eye(3)[labels], labels, num_classes=3)
    >>> settings = Settings.model_validate({"scheme": "isfl", "training": {"rounds": 2}})
    >>> clients = [samples(20, 2, 2), samples(2, 2, 20)]
    >>> with LocalEngine(torch.nn.Linear(3, 3), clients, samples(4, 4, 4), samples(9, 9, 9), settings) as engine:
    ...     state = start(settings, engine)
    ...     for _ in range(settings.training.rounds):
    ...         state, report = run_round(state, settings, engine)
    >>> state.round, report.participants
    (2, (0, 1))
    """

    real_time = False
    """Who is late is simulated."""

    def __init__(
        self,
        model: nn.Module,
        clients: Sequence[Dataset],
        public: Dataset,
        test: Dataset,
        settings: Settings,
        *,
        workers: int = 1,
        directory: Path | None = None,
    ) -> None:
        self.clients = clients if isinstance(clients, Population) else StoredPopulation.of(clients)
        self.settings, self._temporary = settings, directory is None
        worker = Worker(
            prepared(model, settings), public, test, settings, self.clients, directory or self._scratch(), workers
        )
        self.server = ServerCompute(worker, settings, len(self.clients), workers)
        self.client_states: dict[int, StoredState] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop the worker processes; the next request starts new ones."""
        self.server.close()

    @property
    def model(self) -> nn.Module:
        """Return the module that weights are loaded into in this process."""
        return self.server.worker.model

    def memory(self, client: int) -> ClientMemory:
        """Return everything that a client remembers."""
        return recall(self.server.worker.directory, self.client_states.get(client, StoredState()))

    def restore(self, state: FederationState, client_states: Mapping[int, StoredState]) -> None:
        self.client_states.update(client_states)

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    def introduce(self, clients: Sequence[int] | None = None) -> Sequence[ClientProfile]:
        asked = range(len(self.clients)) if clients is None else clients
        return [
            introduce(k, self.clients[k], self.settings, generator(self.settings.seed, Purpose.COUNT_NOISE, client=k))
            for k in asked
        ]

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate]:
        updates = []
        for task_group in _by_model(tasks):
            # The largest clients first, so that all workers finish at about the same time.
            ordered = sorted(task_group, key=lambda task: (-self.clients.size(task.client), task.client))
            jobs = [(task, self.client_states.get(task.client, StoredState())) for task in ordered]
            for update, remembered in self.server.executor.train(jobs):
                self._remember(update.client, remembered)
                updates.append(update)
        return updates

    def renew(self, tasks: Sequence[RenewTask]) -> Sequence[RenewalReport]:
        reports = []
        for task_group in _by_model(tasks):
            jobs = [(task, self.client_states.get(task.client, StoredState())) for task in task_group]
            for report, remembered in self.server.executor.renew(jobs):
                self._remember(report.client, remembered)
                reports.append(report)
        return reports

    def exchange(self, tasks: Sequence[SecureTask]) -> Sequence[SecureAnswer | Refusal]:
        answers: list[SecureAnswer | Refusal] = []
        if tasks and tasks[0].phase == Phase.KEYS:
            self._forget_secrets_before(tasks[0].round)
        for task in tasks:
            remembered = self.client_states.get(task.client, StoredState())
            try:
                answer, memory = answer_phase(task, self.settings, remembered.small)
            except UserError as error:
                answers.append(Refusal(task.client, str(error)))
            else:
                self._remember(task.client, replace(remembered, small=memory))
                answers.append(answer)
        return answers

    def evaluate(self, model: Weights, clients: Sequence[int] | None = None) -> tuple[ClassScores, Mapping[int, Score]]:
        asked = range(len(self.clients)) if clients is None else clients
        own = {k: self.clients.indices(k) for k in asked}
        held = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *own.values()]))  # what clients share, once
        found = self.server.outcomes(model, {"test": None, "clients": held} if own else {"test": None})
        scores = {k: score(found["clients"].at(np.searchsorted(held, indices))) for k, indices in own.items()}
        return self.server.standard(found["test"]), scores

    def observe(self, tasks: Sequence[TrainTask]) -> Mapping[int, Observation]:
        seen = {}
        for task in tasks:
            counts = self.clients.class_counts(task.client).astype(np.float64)
            memory = self.client_states.get(task.client, StoredState()).small
            seen[task.client] = observe_client(task, counts, self.settings, memory)
        return seen

    def _remember(self, client: int, remembered: StoredState) -> None:
        """Store a client's state; remove its older file unless checkpoints of a run directory need it."""
        before = self.client_states.pop(client, StoredState()).file
        if not remembered.is_empty:
            self.client_states[client] = remembered
        if self._temporary and before is not None and before != remembered.file:
            (self.server.worker.directory / before).unlink(missing_ok=True)

    def _forget_secrets_before(self, round: int) -> None:
        """Let clients that were lost in an earlier round forget its secrets, also those that are not chosen again."""
        for client, stored in list(self.client_states.items()):
            if stored.small.secret.round is not None and stored.small.secret.round < round:
                self._remember(client, replace(stored, small=replace(stored.small, secret=RoundSecret())))

    def _scratch(self) -> Path:
        """Return a new directory that is removed with the engine."""
        path = Path(tempfile.mkdtemp(prefix="isfl-"))
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return path


Task = TypeVar("Task", TrainTask, RenewTask)


def _by_model(tasks: Sequence[Task]) -> list[list[Task]]:
    """Group tasks by the model they start from; in a round, all start from the same."""
    groups: dict[int, list[Task]] = {}
    for task in tasks:
        groups.setdefault(id(task.model), []).append(task)
    return list(groups.values())
