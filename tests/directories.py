"""Run directories for tests of reports and figures: tiny real runs, and large ones written without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isfl.experiment.environment import environment
from isfl.experiment.run import run
from isfl.problem.config import Config, config_from
from isfl.theory import rho, sampling_probabilities

TINY: dict[str, Any] = {
    "data": {"public": 40},
    "split": {"kind": "mixed", "clients": 4, "shard_size": 20, "nr": 0.8},
    "model": {"name": "small-cnn", "width": 0.25},
    "training": {"rounds": 3, "local_epochs": 1, "batch_size": 32},
}


def tiny_config(scheme: Any = "isfl", training: Any = None, **changes: Any) -> Config:
    together = {**TINY["training"], **(training or {})}
    return config_from({**TINY, "scheme": scheme, "training": together, **changes}, "test")


def tiny_run(path: Path, scheme: Any = "isfl", rounds: int | None = None, **changes: Any) -> Path:
    """Run on the embedded data; with `rounds`, stop after that many."""

    def on_round(line: dict[str, Any]) -> None:
        if line["round"] == rounds:
            raise KeyboardInterrupt

    settings = tiny_config(scheme, **changes)
    if rounds is None:
        run(settings, path)
    else:
        with pytest.raises(KeyboardInterrupt):
            run(settings, path, on_round)
    return path


def scheme_runs_in(out: Path) -> None:
    """Run FedAvg and ISFL with two seeds into full/, and ISFL with half of the samples into half/."""
    smaller: dict[str, Any] = {
        "split": {**TINY["split"], "clients": 3},
        "model": {"name": "mlp", "width": 0.25},
    }
    for scheme in ("fedavg", "isfl"):
        for seed in (0, 1):
            tiny_run(out / "full" / scheme / f"seed-{seed}", scheme, seed=seed, **smaller)
    tiny_run(out / "half", training={"sampling_ratio": 0.5}, **smaller)


def _confusion(accuracy: float, classes: int) -> list[list[int]]:
    """Return 100 samples of every class; those that are wrong are taken for the next class."""
    right = round(100 * accuracy)
    return [
        [right if j == i else (100 - right) * (j == (i + 1) % classes) for j in range(classes)] for i in range(classes)
    ]


def written_run(path: Path, clients: int, classes: int, rounds: int, scheme: str = "isfl", seed: int = 0) -> Path:
    """Write a finished run of any size; probabilities follow from random Lipschitz values, as in a real run."""
    rng = np.random.default_rng(seed)
    config = tiny_config(scheme, seed=seed, training={"rounds": rounds}).model_dump(mode="json")
    counts = rng.integers(0, 50, (clients, classes))
    local = counts / counts.sum(axis=1, keepdims=True)
    target = np.tile(counts.sum(axis=0) / counts.sum(), (clients, 1))
    described = {
        "class_names": [f"class {i}" for i in range(classes)],
        "client_counts": counts.tolist(),
        "public_counts": [5] * classes,
        "target": target.tolist(),
    }
    path.mkdir(parents=True)
    for name, content in (("config", config), ("run", environment()), ("split", described)):
        (path / f"{name}.json").write_text(json.dumps(content))
    q, metrics, probabilities = local, [], []
    for number in range(1, rounds + 1):
        lipschitz = rng.uniform(1, 10, (clients, classes))
        accuracy = 1 - 0.9**number
        used = float(np.mean(rho(q, target, lipschitz)))
        metrics.append(
            {
                "round": number,
                "accuracy_standard": accuracy,
                "accuracy_global": accuracy + 0.01,
                "recall": rng.uniform(0, 1, classes).tolist(),
                "worst_client": 0,
                "worst_client_accuracy": accuracy - 0.1,
                "train_loss": 1 / number,
                "rho_used": used,
                "rho_paper": 0.9 * used,
                "rho_minimum": 0.5 * used,
                "client_accuracy": [accuracy - 0.1 + 0.01 * k for k in range(clients)],
                "confusion": _confusion(accuracy, classes) if classes <= 20 else None,
                "client_update_norm": [(1 + 0.1 * k) / number for k in range(clients)],
                "client_drift": [(0.5 + 0.1 * k) / number for k in range(clients)],
                "drift": {"measured": 0.1, "bound": 10.0},
                "gradient_square": 0.05,
                "bound": {"initial": 1.0, "psi": 2.0, "sampling": 0.1, "total": 3.1, "step_condition": 0.5},
                "gradient_evaluations": {"training": 1000, "sampling": 100, "diagnostics": 0},
                "seconds": {"training": 10.0, "sampling": 1.0, "diagnostics": 0.0, "evaluation": 0.5, "wall": 12.0},
                "bytes_up": 10**6,
                "bytes_down": 10**6,
                "participants": list(range(clients)),
                "refused": {"1": "did not answer"} if number == 2 else {},
                "dropped_samples": 0,
            }
        )
        rows = {"probabilities": q, "lipschitz": lipschitz}
        probabilities.append(
            {"round": number} | {name: dict(enumerate(table.tolist())) for name, table in rows.items()}
        )
        q = np.asarray(sampling_probabilities(target, local, lipschitz))
    for name, lines in (("metrics", metrics), ("probabilities", probabilities)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "model.safetensors").write_bytes(b"")
    return path
