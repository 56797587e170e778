"""What does the work of a round: this process alone, or worker processes."""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from isfl.data.dataset import Dataset
from isfl.data.population import Population
from isfl.engines.local.shared_buffer import SharedModels
from isfl.engines.local.worker import Piece, Worker, limit_heap
from isfl.engines.local.worker_pool import Handler, WorkerPool
from isfl.federation.client_state import StoredState
from isfl.federation.evaluation import Outcomes
from isfl.federation.settings import Settings
from isfl.federation.values import ClientUpdate, RenewalReport, RenewTask, TrainTask, Weights, state_of
from isfl.smoothness import Measurements, Plan

GLOBAL = 0
"""The row of the shared buffer with the model that every worker reads."""
RETRIES = 2
"""How often a client may take its worker down with it: two accidents are bad luck, three are a cause."""


class Executor(Protocol):
    """Answers to `train` and `renew` come as they are done, the others in the order asked."""

    def train(self, jobs: Sequence[tuple[TrainTask, StoredState]]) -> Iterator[tuple[ClientUpdate, StoredState]]: ...
    def renew(self, jobs: Sequence[tuple[RenewTask, StoredState]]) -> Iterator[tuple[RenewalReport, StoredState]]: ...
    def measure(self, plan: Plan, local: Sequence[Weights], reference: Weights) -> list[Measurements]: ...
    def outcomes(self, pieces: Sequence[Piece], model: Weights) -> list[Outcomes]: ...
    def close(self) -> None: ...


def start_method(device: str) -> Literal["fork", "spawn"]:
    """A forked worker has data and model already and shares their memory.

    Not on every system do numerical libraries survive it, and CUDA never does: there, all is sent once.
    """
    return "fork" if sys.platform == "linux" and device == "cpu" else "spawn"


class WorkerProcesses:
    """Workers that share data and models in memory; only small values are sent.

    The shared buffer has a row for the global model, a row for each worker to put a trained model in, and rows for
    local models to compare with the global one.
    """

    def __init__(self, worker: Worker, local_rows: int, devices: Sequence[str]) -> None:
        self.size = len(devices)
        self.shared = SharedModels(state_of(worker.model), 1 + self.size + local_rows)
        method = start_method(devices[0])
        if method == "spawn":
            for part in worker.data.values():
                if isinstance(part.inputs, Tensor):  # a file is shared already
                    part.inputs.share_memory_()  # type: ignore[no-untyped-call]
                part.labels.share_memory_()  # type: ignore[no-untyped-call]
        # As bytes: sent the usual way, workers would train in one and the same shared tensors.
        model = pickle.dumps(worker.model) if method == "spawn" else worker.model
        data = (worker.data["public"], worker.data["test"], worker.settings, worker.clients)
        arguments = (model, *data, worker.directory, self.shared, list(devices))
        self.pool = WorkerPool(self.size, _build_handler, arguments, retries=RETRIES, method=method)

    def train(self, jobs: Sequence[tuple[TrainTask, StoredState]]) -> Iterator[tuple[ClientUpdate, StoredState]]:
        self.shared.write(GLOBAL, jobs[0][0].model)
        small = [("train", replace(task, model={}), remembered) for task, remembered in jobs]
        for _, (update, names, remembered), number in self.pool.run(small):
            yield update if names is None else replace(update, model=self.shared.copy(1 + number, names)), remembered

    def renew(self, jobs: Sequence[tuple[RenewTask, StoredState]]) -> Iterator[tuple[RenewalReport, StoredState]]:
        self.shared.write(GLOBAL, jobs[0][0].model)
        small = [("renew", replace(task, model={}), remembered) for task, remembered in jobs]
        for _, result, _ in self.pool.run(small):
            yield result

    def measure(self, plan: Plan, local: Sequence[Weights], reference: Weights) -> list[Measurements]:
        self.shared.write(GLOBAL, reference)
        first, room = 1 + self.size, len(self.shared) - 1 - self.size
        groups: list[list[Measurements]] = []
        for start in range(0, len(local), room):
            group = local[start : start + room]
            for row, weights in enumerate(group, start=first):
                self.shared.write(row, weights)
            rows = list(range(first, first + len(group)))
            groups.append(self._in_order([("measure", plan, part, rows) for part in range(len(plan))]))
        return [_together(parts) for parts in zip(*groups, strict=True)]

    def outcomes(self, pieces: Sequence[Piece], model: Weights) -> list[Outcomes]:
        self.shared.write(GLOBAL, model)
        return self._in_order([("outcomes", *piece) for piece in pieces])

    def close(self) -> None:
        self.pool.close()

    def _in_order(self, jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        results = {number: result for number, result, _ in self.pool.run(jobs)}
        return [results[number] for number in range(len(jobs))]


def _build_handler(
    number: int,
    model: nn.Module | bytes,
    public: Dataset,
    test: Dataset,
    settings: Settings,
    clients: Population | None,
    directory: Path,
    shared: SharedModels,
    devices: Sequence[str],
) -> Handler:
    """In a worker process: what it does with each job."""
    torch.set_num_threads(1)
    limit_heap()
    gc.freeze()  # what was imported is never garbage: collecting the rest takes a millisecond
    module: nn.Module = pickle.loads(model) if isinstance(model, bytes) else model  # sent by our own parent
    worker = Worker(module, public, test, settings, clients, directory, device=devices[number])

    def handle(kind: str, *parts: Any) -> Any:
        gc.collect()  # models copied for a client are cycles of hooks and modules: big, but few objects
        reference = shared.read(GLOBAL)
        match (kind, *parts):
            case ("train", task, remembered):
                ((update, remembered),) = worker.train([(replace(task, model=reference), remembered)])
                if settings.secure is not None:  # masked integers have no row in the buffer
                    return update, None, remembered
                shared.write(1 + number, update.model)
                return replace(update, model={}), frozenset(update.model), remembered
            case ("renew", task, remembered):
                (renewed,) = worker.renew([(replace(task, model=reference), remembered)])
                return renewed
            case ("measure", plan, part, rows):
                return worker.measure_part(plan, part, [shared.read(row) for row in rows], reference)
            case ("outcomes", place, rows):
                return worker.outcomes_of(place, rows, reference)
            case _:
                raise AssertionError(f"a job of no known kind: {kind}")

    return handle


def _together(parts: Sequence[Measurements]) -> Measurements:
    """The same samples, measured for several groups of local models."""
    return Measurements(np.concatenate([part.squares for part in parts]), parts[0].labels)
