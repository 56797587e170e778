"""All clients in this process, one after the other."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from isfl.data.dataset import Dataset
from isfl.federation.client import introduce, renew_at_client, train_client
from isfl.federation.drawing import class_probabilities
from isfl.federation.evaluation import ClassScores, Score, evaluate
from isfl.federation.interface import ModelFacts
from isfl.federation.normalization import estimate_statistics, statistic_names, with_group_norm
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
from isfl.smoothness import LipschitzEstimate, estimate_lipschitz
from isfl.theory.arrays import Array


class LocalEngine:
    """Clients as data sets in memory; `memories` is what they would keep on their own machines."""

    def __init__(
        self, model: nn.Module, clients: Sequence[Dataset], public: Dataset, test: Dataset, settings: Settings
    ) -> None:
        if settings.training.batchnorm == "group":
            model = with_group_norm(model)
        # Convolutions on a CPU are a third faster with channels last; the format is part of a result's bits.
        self.model, self.settings = model.to(memory_format=torch.channels_last), settings  # type: ignore[call-overload]
        self.clients, self.public, self.test = clients, public, test
        self.num_classes = test.num_classes
        self.memories: dict[int, ClientMemory] = {}
        kept_local = settings.training.batchnorm == "local"
        self.facts = ModelFacts(
            # A parameter with two names is one parameter: the optimiser must move it under both.
            parameters=frozenset(n for n, p in model.named_parameters(remove_duplicate=False) if p.requires_grad),
            statistics=statistic_names(model) if kept_local else frozenset(),
        )
        self._initial = _state(model)

    def introduce(self) -> Sequence[ClientProfile]:
        noise = [generator(self.settings.seed, Purpose.COUNT_NOISE, client=k) for k in range(len(self.clients))]
        return [introduce(k, data, self.settings, noise[k]) for k, data in enumerate(self.clients)]

    def initial_model(self) -> Weights:
        return self._initial

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate]:
        updates = []
        for task in tasks:
            memory = self.memories.get(task.client, ClientMemory())
            update, self.memories[task.client] = train_client(
                self.model, task, self.clients[task.client], self.settings, memory
            )
            updates.append(update)
        return updates

    def renew(self, tasks: Sequence[RenewTask]) -> Sequence[RenewalReport]:
        reports = []
        for task in tasks:
            data, memory = self.clients[task.client], self.memories[task.client]
            report, self.memories[task.client] = renew_at_client(
                self.model, task, data, self.public, self.settings, memory
            )
            reports.append(report)
        return reports

    def lipschitz(self, local: Sequence[Weights], reference: Weights) -> LipschitzEstimate:
        models = [copy.deepcopy(self.model) for _ in local]
        for model, weights in zip(models, local, strict=True):
            model.load_state_dict(weights)
        return estimate_lipschitz(models, self._loaded(reference), *self.public.everything(), self.num_classes)

    def with_statistics(self, model: Weights) -> Weights:
        module = self._loaded(model)
        estimate_statistics(module, self.public.everything()[0])
        return _state(module)

    def public_loss(self, model: Weights) -> Array:
        return evaluate(self._loaded(model), self.public).loss

    def evaluate(self, model: Weights) -> tuple[ClassScores, Mapping[int, Score]]:
        module = self._loaded(model)
        clients = {k: evaluate(module, data).total for k, data in enumerate(self.clients)}
        return evaluate(module, self.test), clients

    def observe(self, target: Array) -> Mapping[int, Observation]:
        seen = {}
        for k, data in enumerate(self.clients):
            memory = self.memories.get(k, ClientMemory())
            rule = self.settings.scheme.sampling
            first = class_probabilities(rule, data.class_counts.astype(np.float64), target[k])
            seen[k] = Observation(first if memory.probabilities is None else memory.probabilities, memory.rho)
        return seen

    def _loaded(self, weights: Weights) -> nn.Module:
        self.model.load_state_dict(weights)
        return self.model


def _state(model: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
