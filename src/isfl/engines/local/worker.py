"""One process's means to work for clients and server: a model to load weights into, the data, and a device."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal, overload

import torch
from torch import nn

from isfl.data.dataset import Dataset
from isfl.data.population import Population
from isfl.federation.client import renew_at_client, train_client
from isfl.federation.client_state import StoredState, recall, store
from isfl.federation.evaluation import Outcomes, outcomes
from isfl.federation.settings import Settings
from isfl.federation.values import ClientUpdate, RenewalReport, RenewTask, TrainTask, Weights
from isfl.sampling import Indices
from isfl.smoothness import Measurements, Plan, measure_part

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
_TUNE = getattr(ctypes.CDLL(None), "mallopt", None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h calls them

Place = Literal["test", "clients", "public"]
Piece = tuple[Place, slice | Indices]
"""Rows of a data set."""


class Worker:
    """Carries values to the functions of `isfl.federation`; every worker gives the same answers to the bit.

    `clients` is None where they are on machines of their own; `directory` is where the weights are that clients of this
    machine remember. `workers` decides the device: with CUDA, each process has one.
    """

    def __init__(
        self,
        model: nn.Module,
        public: Dataset,
        test: Dataset,
        settings: Settings,
        clients: Population | None = None,
        directory: Path = Path(),
        workers: int = 1,
        device: str | None = None,
    ) -> None:
        self.device = device or devices(workers)[0]
        self.model, self.settings, self.directory = model.to(self.device), settings, directory
        self.clients = clients
        self.data: dict[Place, Dataset] = {"test": test, "public": public}
        if clients is not None:
            self.data["clients"] = clients.data

    def train(self, jobs: Sequence[tuple[TrainTask, StoredState]]) -> Iterator[tuple[ClientUpdate, StoredState]]:
        for task, remembered in jobs:
            trim_heap()  # what the client before left; not after the last one: the estimators can use it
            data, memory = self._data_of(task.client), recall(self.directory, remembered)
            update, memory = train_client(self.model, task, data, self.settings, memory)
            yield update, store(self.directory, task.client, task.round, memory)

    def renew(self, jobs: Sequence[tuple[RenewTask, StoredState]]) -> Iterator[tuple[RenewalReport, StoredState]]:
        for task, remembered in jobs:
            data, memory = self._data_of(task.client), recall(self.directory, remembered)
            report, memory = renew_at_client(self.model, task, data, self.data["public"], self.settings, memory)
            # Renewal changes probabilities only: the weights stay in the file they are in.
            yield report, replace(remembered, small=replace(memory, local_model=None, statistics={}))

    def measure(self, plan: Plan, local: Sequence[Weights], reference: Weights) -> list[Measurements]:
        return [self.measure_part(plan, part, local, reference) for part in range(len(plan))]

    def measure_part(self, plan: Plan, part: int, local: Sequence[Weights], reference: Weights) -> Measurements:
        """Measure one part of the Lipschitz estimate, for all local models."""
        models = LoadedModels(self.spare, local)
        inputs, labels = self.data["public"].everything()
        return measure_part(plan, part, models, self.loaded(reference), inputs.to(self.device), labels.to(self.device))

    def outcomes(self, pieces: Sequence[Piece], model: Weights) -> list[Outcomes]:
        return [self.outcomes_of(*piece, model) for piece in pieces]

    def outcomes_of(self, place: Place, rows: slice | Indices, model: Weights) -> Outcomes:
        """Evaluate the model on these rows of a data set."""
        data = self.data[place]
        held = data.rows(rows.start, rows.stop) if isinstance(rows, slice) else data.subset(rows)
        return outcomes(self.loaded(model), held)

    def close(self) -> None:
        """Nothing to end: everything happens in the caller's process."""

    def _data_of(self, client: int) -> Dataset:
        assert self.clients is not None, "clients of this machine are asked to work here"
        return self.clients[client]

    @cached_property
    def spare(self) -> nn.Module:
        """Another such model, for those that are compared with what is loaded into the first; never for training."""
        return copy.deepcopy(self.model).eval()

    def loaded(self, weights: Weights) -> nn.Module:
        self.model.load_state_dict(weights)
        return self.model


class LoadedModels(Sequence[nn.Module]):
    """Models of which one at a time is in memory: asking for the next one loads it into the same module."""

    def __init__(self, module: nn.Module, weights: Sequence[Weights]) -> None:
        self.module, self.weights = module, weights
        self._state = module.state_dict()  # the very tensors: asking for them takes longer than filling them

    def __len__(self) -> int:
        return len(self.weights)

    @overload
    def __getitem__(self, index: int) -> nn.Module: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[nn.Module]: ...
    def __getitem__(self, index: int | slice) -> nn.Module | Sequence[nn.Module]:
        if isinstance(index, slice):
            return LoadedModels(self.module, self.weights[index])
        weights = self.weights[index]
        for name, value in self._state.items():
            value.copy_(weights[name])
        return self.module


def trim_heap() -> None:
    """Return free heap memory to the system; the C library keeps what tensors of changing sizes leave behind."""
    if _TRIM is not None:
        _TRIM(0)


def limit_heap() -> None:
    """Give what is large back to the system as soon as it is free, for a process of its own.

    A batch's largest activations otherwise leave holes in the heap that the next ones do not fit into: a tenth more
    memory. What is small stays: asking for it again and again is what costs time.
    """
    if _TUNE is not None:
        _TUNE(_MMAP_THRESHOLD, 16 << 20)
        _TUNE(_TRIM_THRESHOLD, 64 << 20)


def devices(workers: int) -> list[str]:
    """The device of each worker: one process for each CUDA device, or as many on the CPU as asked for."""
    if torch.cuda.is_available():
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["cpu"] * workers


def pieces(place: Place, length: int, rows: Indices | None, size: int) -> list[Piece]:
    """Pieces of a data set, or of some of its rows; they depend on the rows alone, never on who works on them."""
    if rows is None or len(rows) == length:
        return [(place, slice(start, min(start + size, length))) for start in range(0, length, size)]
    return [(place, rows[start : start + size]) for start in range(0, len(rows), size)]
