"""All clients on this machine: in this process, or in worker processes, with the same bits."""

from __future__ import annotations

import copy
import pickle
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from isfl.data.dataset import Dataset, Population
from isfl.engines.board import row_bytes
from isfl.engines.hands import Hands, ManyProcesses, OneProcess
from isfl.engines.memories import Remembered, recall
from isfl.engines.workplace import Loaded, Place, Workplace, devices, pieces, state_of
from isfl.federation.client import introduce
from isfl.federation.drawing import class_probabilities
from isfl.federation.evaluation import ClassScores, Outcomes, Score, class_scores, score
from isfl.federation.interface import ModelFacts
from isfl.federation.normalization import estimate_statistics, statistic_names, with_group_norm
from isfl.federation.round import participant_count
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
from isfl.smoothness import LipschitzEstimate, conclude, distance, plan_estimate
from isfl.theory.arrays import Array

PIECE = 1000
"""Samples a worker evaluates at a time."""
LOCAL_BYTES = 256 << 20
"""Local models held in shared memory at a time, to be compared with the global one."""


class LocalEngine:
    """Clients as data sets in memory; `memories` is what they would keep on their own machines.

    `workers` processes share the work; with one, it is done here. `directory` is where the weights go that clients
    remember (default: a temporary one).
    """

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
        if settings.training.batchnorm == "group":
            model = with_group_norm(model)
        # Convolutions on a CPU are a third faster with channels last; the format is part of a result's bits.
        self.model, self.settings = model.to(memory_format=torch.channels_last), settings  # type: ignore[call-overload]
        self.clients = clients if isinstance(clients, Population) else Population.of(clients)
        self.public, self.num_classes = public, test.num_classes
        self.memories: dict[int, Remembered] = {}
        kept_local = settings.training.batchnorm == "local"
        self.facts = ModelFacts(
            # A parameter with two names is one parameter: the optimiser must move it under both.
            parameters=frozenset(n for n, p in model.named_parameters(remove_duplicate=False) if p.requires_grad),
            statistics=statistic_names(model) if kept_local else frozenset(),
        )
        self._initial = state_of(model)
        self._devices, self._temporary = devices(workers), directory is None
        self._place = Workplace(
            self.model, self.clients, public, test, settings, directory or self._scratch(), self._devices[0]
        )
        self._hands: Hands | None = None

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; the next request would start new ones."""
        if self._hands is not None:
            self._hands.close()
        self._hands = None

    def memory(self, client: int) -> ClientMemory:
        """All that a client remembers."""
        return recall(self._place.memories, self.memories.get(client, Remembered()))

    # ------------------------------------------------------------ what a round asks for

    def introduce(self) -> Sequence[ClientProfile]:
        noise = [generator(self.settings.seed, Purpose.COUNT_NOISE, client=k) for k in range(len(self.clients))]
        return [introduce(k, data, self.settings, noise[k]) for k, data in enumerate(self.clients)]

    def initial_model(self) -> Weights:
        return self._initial

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

    def lipschitz(self, local: Sequence[Weights], reference: Weights) -> LipschitzEstimate:
        module, device = self._place.loaded(reference), self._place.device
        inputs, labels = self.public.everything()
        plan = plan_estimate(
            module, inputs.to(device), labels.to(device), self.num_classes, method=self.settings.estimator
        )
        distances = [distance(other, module) for other in Loaded(copy.deepcopy(module), local)]
        return conclude(plan, self._workers().measure(plan, local, reference), distances)

    def with_statistics(self, model: Weights) -> Weights:
        module = self._place.loaded(model)
        estimate_statistics(module, self.public.everything()[0].to(self._place.device))
        return state_of(module)

    def public_loss(self, model: Weights) -> Array:
        (found,) = self._outcomes(model, "public")
        return class_scores(found, self.public.labels.numpy(), self.num_classes).loss

    def evaluate(self, model: Weights) -> tuple[ClassScores, Mapping[int, Score]]:
        test, held = self._outcomes(model, "test", "clients")
        bounds = self.clients.bounds
        clients = {k: score(held.rows(int(bounds[k]), int(bounds[k + 1]))) for k in range(len(self.clients))}
        return class_scores(test, self._place.data["test"].labels.numpy(), self.num_classes), clients

    def observe(self, target: Array) -> Mapping[int, Observation]:
        seen = {}
        for k, data in enumerate(self.clients):
            memory = self.memories.get(k, Remembered()).small
            rule = self.settings.scheme.sampling
            first = class_probabilities(rule, data.class_counts.astype(np.float64), target[k])
            seen[k] = Observation(first if memory.probabilities is None else memory.probabilities, memory.rho)
        return seen

    def _remember(self, client: int, remembered: Remembered) -> None:
        """A run directory removes old files with old checkpoints; in a temporary one nobody goes back to them."""
        before = self.memories.get(client, Remembered()).file
        self.memories[client] = remembered
        if self._temporary and before is not None and before != remembered.file:
            (self._place.memories / before).unlink(missing_ok=True)

    # ------------------------------------------------------------ who does it

    def _outcomes(self, model: Weights, *places: Place) -> list[Outcomes]:
        """Of whole data sets, piece by piece, all in one go: nobody waits for the others between two sets."""
        rows = [(place, *piece) for place in places for piece in pieces(len(self._place.data[place]), PIECE)]
        found = self._workers().outcomes(rows, model)
        return [
            Outcomes.joined([part for (at, *_), part in zip(rows, found, strict=True) if at == place])
            for place in places
        ]

    def _workers(self) -> Hands:
        if self._hands is None:
            self._hands = self._staffed()
        return self._hands

    def _staffed(self) -> Hands:
        if len(self._devices) == 1:
            return OneProcess(self._place)
        compared = participant_count(self.settings, len(self.clients)) if self.settings.measures_lipschitz else 1
        rows = max(1, min(compared, LOCAL_BYTES // row_bytes(self._initial)))
        try:
            return ManyProcesses(self._place, rows, self._devices)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            warnings.warn(
                f"one worker instead of {len(self._devices)}: the model cannot be sent ({error})", stacklevel=2
            )
            return OneProcess(self._place)

    def _scratch(self) -> Path:
        """Removed with the engine."""
        path = Path(tempfile.mkdtemp(prefix="isfl-"))
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return path


Task = TypeVar("Task", TrainTask, RenewTask)


def _by_model(tasks: Sequence[Task]) -> list[list[Task]]:
    """Tasks that start from the same model go together; in a round, all do."""
    groups: dict[int, list[Task]] = {}
    for task in tasks:
        groups.setdefault(id(task.model), []).append(task)
    return list(groups.values())
