"""What the server itself computes in a round, from its model, the public set and the test set.

Every engine has one: the server's work is the same wherever clients are.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping, Sequence

from torch import nn

from isfl.data.dataset import Dataset
from isfl.engines.local.executor import Executor, WorkerProcesses
from isfl.engines.local.shared_buffer import row_bytes
from isfl.engines.local.worker import LoadedModels, Place, Worker, devices, pieces
from isfl.federation.evaluation import ClassScores, Outcomes, class_scores
from isfl.federation.interface import ModelFacts
from isfl.federation.normalization import estimate_statistics, statistic_names
from isfl.federation.participation import participant_count
from isfl.federation.privacy import privacy_noise
from isfl.federation.settings import Settings
from isfl.federation.values import Weights, state_of
from isfl.randomness import Noise
from isfl.sampling import Indices
from isfl.smoothness import (
    LipschitzEstimate,
    MomentsEstimate,
    conclude,
    distance,
    gradient_moments,
    plan_estimate,
    squared_gradient,
)
from isfl.theory.arrays import Array

PIECE = 1000
"""Samples a worker evaluates at a time."""
LOCAL_BYTES = 256 << 20
"""Local models held in shared memory at a time, to be compared with the global one."""


def model_facts(model: nn.Module, settings: Settings) -> ModelFacts:
    """What a round has to know about the model's state."""
    kept_local = settings.training.batchnorm == "local"
    return ModelFacts(
        # A parameter with two names is one parameter: the optimiser must move it under both.
        parameters=frozenset(n for n, p in model.named_parameters(remove_duplicate=False) if p.requires_grad),
        statistics=statistic_names(model) if kept_local else frozenset(),
    )


class ServerCompute:
    """The server's share of a round, done in this process or shared by worker processes.

    `worker` has the model (as it is trained), the data and the device of this process; `clients` is how many there are,
    and `real_clients` whether their data are their own, not a part of the configuration's.
    Worker processes are started by the first request and ended by `close`.
    """

    def __init__(
        self, worker: Worker, settings: Settings, clients: int, workers: int, *, real_clients: bool = False
    ) -> None:
        self.worker, self.settings, self.clients, self.real_clients = worker, settings, clients, real_clients
        self.public, self.test = worker.data["public"], worker.data["test"]
        self.num_classes, self.num_public = self.test.num_classes, len(self.public)
        self.facts = model_facts(worker.model, settings)
        self._initial = state_of(worker.model)
        self._devices = devices(workers)
        self._executor: Executor | None = None

    def close(self) -> None:
        """End the worker processes; the next request would start new ones."""
        if self._executor is not None:
            self._executor.close()
        self._executor = None

    @property
    def executor(self) -> Executor:
        """What does the work, started when it is first needed."""
        if self._executor is None:
            self._executor = self._new_executor()
        return self._executor

    def initial_model(self) -> Weights:
        return self._initial

    def lipschitz(self, local: Sequence[Weights], reference: Weights) -> LipschitzEstimate:
        module, device = self.worker.loaded(reference), self.worker.device
        inputs, labels = self.public.everything()
        plan = plan_estimate(
            module, inputs.to(device), labels.to(device), self.num_classes, method=self.settings.estimator
        )
        distances = [distance(other, module) for other in LoadedModels(self.worker.spare, local)]
        return conclude(plan, self.executor.measure(plan, local, reference), distances)

    def moments(self, model: Weights) -> MomentsEstimate:
        module, device = self.worker.loaded(model), self.worker.device
        inputs, labels = self.public.everything()
        return gradient_moments(module, inputs.to(device), labels.to(device), self.num_classes)

    def with_statistics(self, model: Weights) -> Weights:
        module = self.worker.loaded(model)
        estimate_statistics(module, self.public.everything()[0].to(self.worker.device))
        return state_of(module)

    def public_loss(self, model: Weights) -> Array:
        return self._by_class(self.outcomes(model, {"public": None})["public"], self.public).loss

    def privacy_noise(self, round: int) -> Noise:
        return privacy_noise(self.settings.seed, round, real=self.real_clients)

    def gradient_square(self, model: Weights, target: Array) -> tuple[float, int]:
        module, device = self.worker.loaded(model), self.worker.device
        inputs, labels = self.public.everything()
        return squared_gradient(module, inputs.to(device), labels.to(device), target), len(labels)

    def standard(self, found: Outcomes) -> ClassScores:
        """The scores of what was found on the test set."""
        return self._by_class(found, self.test)

    def outcomes(self, model: Weights, places: Mapping[Place, Indices | None]) -> dict[Place, Outcomes]:
        """Of these rows of data sets, None for all, piece by piece, in one go: no worker waits between two sets."""
        cut = [piece for p, rows in places.items() for piece in pieces(p, len(self.worker.data[p]), rows, PIECE)]
        found: dict[Place, list[Outcomes]] = {place: [] for place in places}
        for (place, _), part in zip(cut, self.executor.outcomes(cut, model), strict=True):
            found[place].append(part)
        return {place: Outcomes.joined(parts) for place, parts in found.items()}

    def _by_class(self, found: Outcomes, data: Dataset) -> ClassScores:
        return class_scores(found, data.labels.numpy(), self.num_classes)

    def _new_executor(self) -> Executor:
        if len(self._devices) == 1:
            return self.worker
        compared = participant_count(self.settings, self.clients) if self.settings.measures_lipschitz else 1
        rows = max(1, min(compared, LOCAL_BYTES // row_bytes(self._initial)))
        try:
            return WorkerProcesses(self.worker, rows, self._devices)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            warnings.warn(
                f"one worker instead of {len(self._devices)}: the model cannot be sent ({error})", stacklevel=2
            )
            return self.worker
