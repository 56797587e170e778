"""Small federations for tests: real training, in milliseconds."""

from __future__ import annotations

import copy
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from isfl.data import Dataset
from isfl.data.counts import ClassCounts, federation_of
from isfl.engines import LocalEngine
from isfl.federation import FederationState, RoundReport, Settings, run_round, start
from isfl.federation.evaluation import ClassScores
from isfl.federation.values import ClientUpdate, TrainTask
from isfl.theory.arrays import Array

CLASSES = 4
FEATURES = 6
AGGREGATIONS = ["mean", "momentum", "adam", "median", "trimmed-mean"]


def blobs(counts: Sequence[int], seed: int) -> Dataset:
    """Gaussian clouds around the corners of a simplex, `counts[i]` samples of class `i`."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    inputs = rng.normal(size=(len(labels), FEATURES)) * 0.8
    inputs[np.arange(len(labels)), labels] += 2.0
    return Dataset(torch.from_numpy(inputs).float(), torch.from_numpy(labels), len(counts))


COUNTS = ((30, 6, 2, 2), (2, 2, 30, 6), (10, 10, 10, 10))
"""Three clients of forty samples: two skewed, one balanced."""


def network(batchnorm: bool = False, dropout: float = 0.0, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers: list[nn.Module] = [nn.Linear(FEATURES, 8)]
        if batchnorm:
            layers.append(nn.BatchNorm1d(8))
        layers += [nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, CLASSES)]
        return nn.Sequential(*layers)


def settings_of(scheme: Any = "isfl", seed: int = 0, **parts: Any) -> Settings:
    training = {"rounds": 3, "local_epochs": 2, "batch_size": 16, **parts.pop("training", {})}
    return Settings.model_validate({"scheme": scheme, "seed": seed, "training": training, **parts})


def engine_of(
    settings: Settings,
    counts: Sequence[Sequence[int]] = COUNTS,
    model: nn.Module | None = None,
    kind: type[LocalEngine] = LocalEngine,
    **options: Any,
) -> LocalEngine:
    model = copy.deepcopy(model) if model is not None else network()
    clients = [blobs(row, seed=100 + k) for k, row in enumerate(counts)]
    public, test = blobs((8, 8, 8, 8), seed=7), blobs((20, 20, 20, 20), seed=8)
    return kind(model, clients, public, test, settings, **options)


def federate(
    settings: Settings, engine: LocalEngine | None = None, **options: Any
) -> tuple[FederationState, list[RoundReport]]:
    """Run all rounds; return the last state and the reports."""
    engine = engine or engine_of(settings, **options)
    state, reports = start(settings, engine), []
    for _ in range(settings.training.rounds):
        state, report = run_round(state, settings, engine)
        reports.append(report)
    return state, reports


def last_scores(reports: Sequence[RoundReport]) -> ClassScores:
    scores = reports[-1].standard
    assert scores is not None, "the last round is always evaluated"
    return scores


def same_bits(one: FederationState, other: FederationState) -> bool:
    return one.model.keys() == other.model.keys() and all(torch.equal(one.model[n], other.model[n]) for n in one.model)


@contextmanager
def started(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Start `isfl` in a process that handles Ctrl-C, however the tests were started; kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "isfl.cli", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Meddling(LocalEngine):
    """An engine whose updates a test can change, like a faulty or hostile client."""

    def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
        return updates

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate]:
        return self.meddle(list(super().train(tasks)))


def module_at(path: Path) -> ModuleType:
    """Import a script or example from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the module they are in
    spec.loader.exec_module(module)
    return module


def counted(rows: object) -> ClassCounts:
    """Return class counts whose clients and classes are named by number."""
    counts = np.array(rows, dtype=np.float64)
    clients, classes = (tuple(map(str, range(size))) for size in counts.shape)
    return federation_of(counts, clients, classes, clients)


def written(directory: Path, text: str | bytes, name: str = "c.csv") -> Path:
    """Write a file with this content."""
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def random_problem(rng: np.random.Generator, clients: int, classes: int, missing: float = 0.3) -> tuple[Array, ...]:
    """Return a random target, the label mixes of clients that lack some classes, and Lipschitz values."""
    target = rng.dirichlet(np.full(classes, rng.choice([0.3, 1.0, 5.0])))
    local = rng.dirichlet(np.full(classes, 0.5), size=clients) * (rng.random((clients, classes)) > missing)
    local[local.sum(axis=1) == 0] = np.eye(classes)[0]
    local /= local.sum(axis=1, keepdims=True)
    return target, local, rng.lognormal(0.0, rng.choice([0.1, 0.7, 2.0]), size=(clients, classes))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(count: int, side: int = 8, channels: int = 3) -> torch.Tensor:
    return torch.randint(1, 256, (count, channels, side, side), generator=seeded(1), dtype=torch.uint8)


def bytes_drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of bytes of every later draw of `SystemNoise` from the system's entropy."""
    drawn: list[int] = []

    def counted(count: int, entropy: Callable[[int], bytes] = os.urandom) -> bytes:
        drawn.append(count)
        return entropy(count)

    monkeypatch.setattr("isfl.randomness.os.urandom", counted)
    return drawn
