"""All clients on this machine: in this process, or in worker processes, with the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from torch import nn

from isfl.data.dataset import Dataset, Population
from isfl.engines.memories import Remembered, recall
from isfl.engines.server import ServerSide
from isfl.federation.client import introduce
from isfl.federation.evaluation import ClassScores, Score, score
from isfl.federation.sampling_rules.isfl import known_row
from isfl.federation.settings import Settings
from isfl.federation.values import (
    ClientMemory,
    ClientProfile,
    ClientUpdate,
    Observation,
    RenewalReport,
    RenewTask,
    TrainTask,
    Weights,
)
from isfl.randomness import Purpose, generator
from isfl.theory.arrays import Array


class LocalEngine(ServerSide):
    """Clients as data sets in memory; `memories` is what they would keep on their own machines."""

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
        self.clients = clients if isinstance(clients, Population) else Population.of(clients)
        super().__init__(model, self.clients, public, test, settings, workers, directory)
        self.memories: dict[int, Remembered] = {}

    def memory(self, client: int) -> ClientMemory:
        """All that a client remembers."""
        return recall(self._place.memories, self.memories.get(client, Remembered()))

    def introduce(self) -> Sequence[ClientProfile]:
        noise = [generator(self.settings.seed, Purpose.COUNT_NOISE, client=k) for k in range(len(self.clients))]
        return [introduce(k, data, self.settings, noise[k]) for k, data in enumerate(self.clients)]

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate]:
        updates = []
        for task_group in _by_model(tasks):
            # The largest first: whoever ends last should end soon after the others.
            ordered = sorted(task_group, key=lambda task: (-len(self.clients[task.client]), task.client))
            jobs = [(task, self.memories.get(task.client, Remembered())) for task in ordered]
            for update, remembered in self._workers().train(jobs):
                self._remember(update.client, remembered)
                updates.append(update)
        return updates

    def renew(self, tasks: Sequence[RenewTask]) -> Sequence[RenewalReport]:
        reports = []
        for task_group in _by_model(tasks):
            jobs = [(task, self.memories[task.client]) for task in task_group]
            for report, remembered in self._workers().renew(jobs):
                self._remember(report.client, remembered)
                reports.append(report)
        return reports

    def evaluate(self, model: Weights) -> tuple[ClassScores, Mapping[int, Score]]:
        test, held = self._outcomes(model, "test", "clients")
        bounds = self.clients.bounds
        clients = {k: score(held.rows(int(bounds[k]), int(bounds[k + 1]))) for k in range(len(self.clients))}
        return self._standard(test), clients

    def observe(self, target: Array, lipschitz: Array | None) -> Mapping[int, Observation]:
        rule, seen = self.settings.scheme.sampling, {}
        for k, data in enumerate(self.clients):
            counts = data.class_counts.astype(np.float64)
            drawn = None if lipschitz is not None else self.memories.get(k, Remembered()).small.probabilities
            if drawn is None:
                drawn = rule.own_probabilities(counts, target[k], known_row(lipschitz, k))
            seen[k] = Observation(drawn, counts / len(data))
        return seen

    def _remember(self, client: int, remembered: Remembered) -> None:
        """A run directory removes old files with old checkpoints; in a temporary one nobody goes back to them."""
        before = self.memories.get(client, Remembered()).file
        self.memories[client] = remembered
        if self._temporary and before is not None and before != remembered.file:
            (self._place.memories / before).unlink(missing_ok=True)


Task = TypeVar("Task", TrainTask, RenewTask)


def _by_model(tasks: Sequence[Task]) -> list[list[Task]]:
    """Tasks that start from the same model go together; in a round, all do."""
    groups: dict[int, list[Task]] = {}
    for task in tasks:
        groups.setdefault(id(task.model), []).append(task)
    return list(groups.values())
