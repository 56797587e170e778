"""One process or many, killed workers or not: the same bits."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from isfl.engines import LocalEngine
from isfl.engines.local import executor
from isfl.engines.local.executor import WorkerProcesses
from isfl.experiment.metrics import metrics_of, probabilities_of
from isfl.federation import RoundReport, Settings, run_round, start
from isfl.federation.values import Weights
from tests.worlds import engine_of, network, settings_of

MEASURED_AT_CLIENT = {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}
SCHEMES: dict[str, dict[str, Any]] = {
    "isfl": {"scheme": "isfl"},
    "fedavg with diagnostics": {"scheme": "fedavg", "diagnostics": {"lipschitz": True}},
    "isfedavg": {"scheme": "isfedavg"},
    "bias-variance": {"scheme": "bias-variance", "target": {"kind": "uniform"}},
    "private, moon, local statistics": {
        "scheme": {**MEASURED_AT_CLIENT, "objective": {"kind": "moon"}},
        "target": {"kind": "uniform"},
        "training": {"batchnorm": "local"},
    },
    "private, both sides of the bound": {
        "scheme": {"name": "isfl", "sampling": {"where": "client"}},
        "target": {"kind": "uniform"},
        "diagnostics": {"bound": True},
    },
}


def of(name: str) -> Settings:
    parts = {**SCHEMES[name]}
    return settings_of(parts.pop("scheme"), **parts)


def federated(settings: Settings, engine: LocalEngine) -> tuple[Weights, list[Any]]:
    """Return the last model and all reports without seconds."""
    state, told = start(settings, engine), []
    for _ in range(settings.training.rounds):
        state, report = run_round(state, settings, engine)
        told.append(_without_seconds(report))
    return state.model, told


def _without_seconds(report: RoundReport) -> Any:
    line = metrics_of(report)
    del line["seconds"]
    return line, probabilities_of(report)


def identical(one: tuple[Weights, list[Any]], other: tuple[Weights, list[Any]]) -> bool:
    same_model = one[0].keys() == other[0].keys() and all(torch.equal(one[0][n], other[0][n]) for n in one[0])
    return same_model and one[1] == other[1]


@pytest.mark.parametrize("name", SCHEMES)
def test_any_number_of_workers_gives_the_same_bits(name: str) -> None:
    settings = of(name)
    results = []
    for workers in (1, 2, 3):
        with engine_of(settings, model=network(batchnorm=True, dropout=0.2), workers=workers) as engine:
            results.append(federated(settings, engine))
    assert identical(results[0], results[1]) and identical(results[0], results[2])


def test_a_killed_worker_is_replaced_and_its_client_is_trained_again() -> None:
    settings = settings_of("isfl", training={"rounds": 6, "local_epochs": 20})
    with engine_of(settings) as alone:
        undisturbed = federated(settings, alone)
    with engine_of(settings, workers=2) as engine:
        engine.train([])  # nothing to do: no worker is started
        victims: list[int] = []
        stop = threading.Event()

        def assassin() -> None:
            while not stop.wait(0.02):
                workers = (
                    engine.server._executor.pool.workers if isinstance(engine.server._executor, WorkerProcesses) else []
                )
                busy = [w.process.pid for w in workers if w.job is not None and w.process.pid not in victims]
                if busy and len(victims) < 2 and busy[0] is not None:
                    os.kill(busy[0], signal.SIGKILL)
                    victims.append(busy[0])

        thread = threading.Thread(target=assassin)
        thread.start()
        try:
            disturbed = federated(settings, engine)
        finally:
            stop.set()
            thread.join()
    assert len(victims) == 2, "the test must have killed two workers"
    assert identical(undisturbed, disturbed)


def test_workers_end_when_the_engine_is_closed() -> None:
    settings = settings_of("fedavg", training={"rounds": 1})
    with engine_of(settings, workers=2) as engine:
        federated(settings, engine)
        assert isinstance(engine.server._executor, WorkerProcesses)
        processes = [worker.process for worker in engine.server._executor.pool.workers]
        assert len(processes) == 2 and all(process.is_alive() for process in processes)
    assert not any(process.is_alive() for process in processes)


def _resident(engine: LocalEngine) -> int:
    """Return the bytes of memory of this process and the engine's workers."""
    assert isinstance(engine.server._executor, WorkerProcesses)
    pids = [os.getpid(), *(worker.process.pid for worker in engine.server._executor.pool.workers)]
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_number_of_rounds() -> None:
    """Fifty rounds of a scheme that remembers a 1 MB model for every client; a round's leak would be 3 MB and more."""
    settings = settings_of(
        {**MEASURED_AT_CLIENT, "objective": {"kind": "moon"}},
        target={"kind": "uniform"},
        training={"rounds": 50, "local_epochs": 1},
    )
    model = nn.Sequential(nn.Linear(6, 256), nn.ReLU(), nn.Linear(256, 1000), nn.ReLU(), nn.Linear(1000, 4))
    with engine_of(settings, model=model, workers=2) as engine:
        state, sizes = start(settings, engine), []
        for _ in range(settings.training.rounds):
            state, _ = run_round(state, settings, engine)
            sizes.append(_resident(engine))
        files = list(engine.server.worker.directory.iterdir())
    assert sum(sizes[40:]) / 10 - sum(sizes[10:20]) / 10 < 20 << 20
    assert len(files) == 3, "what is not needed any more is removed"


class Closure(nn.Module):
    """A model that cannot be sent to another process."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.after: Callable[[Tensor], Tensor] = lambda x: x

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.after(self.inner(x))
        return logits


def test_spawned_workers_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are spawned where forking is not safe."""
    settings = of("private, moon, local statistics")
    results = []
    for workers in (1, 2):
        monkeypatch.setattr(executor, "start_method", lambda device: "spawn")
        with engine_of(settings, model=network(batchnorm=True, dropout=0.2), workers=workers) as engine:
            results.append(federated(settings, engine))
    assert identical(*results)


def test_a_model_that_cannot_be_sent_is_trained_here_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "start_method", lambda device: "spawn")
    settings = settings_of("fedavg", training={"rounds": 1})
    with engine_of(settings, workers=2) as engine:
        pass
    engine.server.worker.model = Closure()
    with pytest.warns(UserWarning, match="one worker instead of 2"):
        engine.evaluate(engine.model.state_dict())
