"""A tiny run with every kind of state between rounds, stopped or complete, for tests of resuming."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isfl.experiment.run import LocalHost, run
from isfl.problem.config import Config, config_from

TINY: dict[str, Any] = {
    "scheme": {
        "name": "isfl",
        "sampling": {"where": "client", "lipschitz_at": "client"},
        "objective": {"kind": "moon", "calibrate": True},
        "aggregation": {"rule": "adam"},
    },
    "target": {"kind": "uniform"},
    "data": {"public": 40},
    "split": {"kind": "mixed", "clients": 4, "shard_size": 20, "nr": 0.8},
    "model": {"name": "small-cnn", "width": 0.25},
    "training": {"rounds": 5, "local_epochs": 1, "batch_size": 16, "participation": 0.5, "batchnorm": "local"},
}
"""All state between rounds: clients' models, statistics and probabilities, server buffers."""


def config(**changes: Any) -> Config:
    return config_from({**TINY, **changes}, "test")


def outcome(path: Path) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """Return the parts of a run that interruptions must not change: everything but seconds."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"]
    return (path / "model.safetensors").read_bytes(), (path / "probabilities.jsonl").read_bytes(), lines


def stop_after(path: Path, rounds: int, workers: int = 1, settings: Config | None = None) -> None:
    """Run and stop cleanly after `rounds` rounds."""

    def on_round(line: dict[str, Any]) -> None:
        if line["round"] == rounds:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings or config(), path, on_round, LocalHost(workers))
