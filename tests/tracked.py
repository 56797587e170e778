"""Tiny runs for tests of trackers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from isfl.experiment.run import resume, run
from isfl.problem.config import Config, config_from
from isfl.trackers.tracking import Tracking, tracked

RAW: dict[str, Any] = {
    "data": {"public": 30},
    "split": {"kind": "iid", "clients": 2, "samples_per_client": 30},
    "model": {"name": "mlp", "width": 0.25},
    "training": {"rounds": 3, "local_epochs": 1, "batch_size": 32},
}


def config_of() -> Config:
    return config_from(RAW, "test")


def metrics(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def ignore(line: Mapping[str, Any]) -> None:
    pass


def run_tracked(tracker: str, out: Path, on_round: Callable[[dict[str, Any]], None] = ignore) -> Path:
    """Run with this tracker; `on_round` may raise to stop the run."""
    config = config_of()
    with tracked(Tracking([tracker]), config, out, on_round) as both:
        run(config, out, both)
    return out


def resume_tracked(tracker: str, out: Path) -> None:
    """Resume with this tracker."""
    with tracked(Tracking([tracker]), config_of(), out, ignore) as both:
        resume(out, both)


def lose_the_last_round(out: Path) -> None:
    """Make a finished run one that has to repeat its last round."""
    (out / "model.safetensors").unlink()
    max((out / "checkpoints").glob("round-*.json")).unlink()


def clients_of(path: Path) -> list[list[Any]]:
    """Return round, client, accuracy, update norm and drift of every client and round, from the metrics."""
    keys = ("client_accuracy", "client_update_norm", "client_drift")
    return [[line["round"], k, *(line[key][k] for key in keys)] for line in metrics(path) for k in range(2)]


def stop_in_round_2(line: Mapping[str, Any]) -> None:
    """Stop a run as Ctrl-C does, when its second round is written down and not reported yet."""
    if line["round"] == 2:
        raise KeyboardInterrupt
