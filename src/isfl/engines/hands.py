"""Who does the work of a round: this process alone, or worker processes."""

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
from torch import nn

from isfl.crew import Crew, Handler
from isfl.data.dataset import Dataset, Population
from isfl.engines.board import Board
from isfl.engines.memories import Remembered
from isfl.engines.workplace import Place, Workplace, state_of, stay_small
from isfl.federation.evaluation import Outcomes
from isfl.federation.settings import Settings
from isfl.federation.values import ClientUpdate, RenewalReport, RenewTask, TrainTask, Weights
from isfl.smoothness import Measurements, Plan

GLOBAL = 0
"""The row of the board with the model everybody reads."""
RETRIES = 2
"""How often a client may take its worker down with it: two accidents are bad luck, three are a cause."""


class Hands(Protocol):
    """Answers to `train` and `renew` come as they are done, the others in the order asked."""

    def train(self, jobs: Sequence[tuple[TrainTask, Remembered]]) -> Iterator[tuple[ClientUpdate, Remembered]]: ...
    def renew(self, jobs: Sequence[tuple[RenewTask, Remembered]]) -> Iterator[tuple[RenewalReport, Remembered]]: ...
    def measure(self, plan: Plan, local: Sequence[Weights], reference: Weights) -> list[Measurements]: ...
    def outcomes(self, rows: Sequence[tuple[Place, int, int]], model: Weights) -> list[Outcomes]: ...
    def close(self) -> None: ...


class OneProcess:
    """Everything here, one thing after the other."""

    def __init__(self, place: Workplace) -> None:
        self.place = place

    def train(self, jobs: Sequence[tuple[TrainTask, Remembered]]) -> Iterator[tuple[ClientUpdate, Remembered]]:
        return (self.place.train(*job) for job in jobs)

    def renew(self, jobs: Sequence[tuple[RenewTask, Remembered]]) -> Iterator[tuple[RenewalReport, Remembered]]:
        return (self.place.renew(*job) for job in jobs)

    def measure(self, plan: Plan, local: Sequence[Weights], reference: Weights) -> list[Measurements]:
        return [self.place.measure(plan, part, local, reference) for part in range(len(plan))]

    def outcomes(self, rows: Sequence[tuple[Place, int, int]], model: Weights) -> list[Outcomes]:
        return [self.place.outcomes(*piece, model) for piece in rows]

    def close(self) -> None:
        pass


def start_method(device: str) -> Literal["fork", "spawn"]:
    """A forked worker has data and model already and shares their memory.

    Not on every system do numerical libraries survive it, and CUDA never does: there, all is sent once.
    """
    return "fork" if sys.platform == "linux" and device == "cpu" else "spawn"


class ManyProcesses:
    """Workers that share data and models in memory; only small values are sent.

    The board has a row for the global model, a row for each worker to put a trained model in, and rows for local
    models to compare with the global one.
    """

    def __init__(self, place: Workplace, local_rows: int, devices: Sequence[str]) -> None:
        self.size = len(devices)
        self.board = Board(state_of(place.model), 1 + self.size + local_rows)
        method = start_method(devices[0])
        if method == "spawn":
            for part in place.data.values():
                part.inputs.share_memory_()  # type: ignore[no-untyped-call]
                part.labels.share_memory_()  # type: ignore[no-untyped-call]
        # As bytes: sent the usual way, workers would train in one and the same shared tensors.
        model = pickle.dumps(place.model) if method == "spawn" else place.model
        data = (place.clients, place.data["public"], place.data["test"])
        arguments = (model, *data, place.settings, place.memories, self.board, list(devices))
        self.crew = Crew(self.size, _workplace, arguments, retries=RETRIES, method=method)

    def train(self, jobs: Sequence[tuple[TrainTask, Remembered]]) -> Iterator[tuple[ClientUpdate, Remembered]]:
        self.board.write(GLOBAL, jobs[0][0].model)
        small = [("train", replace(task, model={}), remembered) for task, remembered in jobs]
        for _, (update, names, remembered), worker in self.crew.run(small):
            yield replace(update, model=self.board.copy(1 + worker, names)), remembered

    def renew(self, jobs: Sequence[tuple[RenewTask, Remembered]]) -> Iterator[tuple[RenewalReport, Remembered]]:
        self.board.write(GLOBAL, jobs[0][0].model)
        small = [("renew", replace(task, model={}), remembered) for task, remembered in jobs]
        for _, result, _ in self.crew.run(small):
            yield result

    def measure(self, plan: Plan, local: Sequence[Weights], reference: Weights) -> list[Measurements]:
        self.board.write(GLOBAL, reference)
        first, room = 1 + self.size, len(self.board) - 1 - self.size
        groups: list[list[Measurements]] = []
        for start in range(0, len(local), room):
            group = local[start : start + room]
            for row, weights in enumerate(group, start=first):
                self.board.write(row, weights)
            rows = list(range(first, first + len(group)))
            groups.append(self._in_order([("measure", plan, part, rows) for part in range(len(plan))]))
        return [_together(parts) for parts in zip(*groups, strict=True)]

    def outcomes(self, rows: Sequence[tuple[Place, int, int]], model: Weights) -> list[Outcomes]:
        self.board.write(GLOBAL, model)
        return self._in_order([("outcomes", *piece) for piece in rows])

    def close(self) -> None:
        self.crew.close()

    def _in_order(self, jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        results = {number: result for number, result, _ in self.crew.run(jobs)}
        return [results[number] for number in range(len(jobs))]


def _workplace(
    number: int,
    model: nn.Module | bytes,
    clients: Population,
    public: Dataset,
    test: Dataset,
    settings: Settings,
    memories: Path,
    board: Board,
    devices: Sequence[str],
) -> Handler:
    """In a worker: build its workplace once; the handler serves it."""
    torch.set_num_threads(1)
    stay_small()
    gc.freeze()  # what was imported is never garbage: collecting the rest takes a millisecond
    module: nn.Module = pickle.loads(model) if isinstance(model, bytes) else model  # sent by our own parent
    place = Workplace(module, clients, public, test, settings, memories, devices[number])

    def handle(kind: str, *parts: Any) -> Any:
        gc.collect()  # models copied for a client are cycles of hooks and modules: big, but few objects
        reference = board.read(GLOBAL)
        if kind == "train":
            task, remembered = parts
            update, remembered = place.train(replace(task, model=reference), remembered)
            board.write(1 + number, update.model)
            return replace(update, model={}), frozenset(update.model), remembered
        if kind == "renew":
            task, remembered = parts
            return place.renew(replace(task, model=reference), remembered)
        if kind == "measure":
            plan, part, rows = parts
            return place.measure(plan, part, [board.read(row) for row in rows], reference)
        where, start, stop = parts
        return place.outcomes(where, start, stop, reference)

    return handle


def _together(parts: Sequence[Measurements]) -> Measurements:
    """The same samples, measured for several groups of local models."""
    return Measurements(np.concatenate([part.squares for part in parts]), parts[0].labels)
