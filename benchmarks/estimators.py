"""The cheaper estimators of L against its definition: ranks of classes, and the resulting probabilities.

A federation trains with the exact values on the demo's data (real images, severe label skew); every round, all methods
measure the same models. Accuracy comes from separate runs, one for each method and seed.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import torch

from isfl.experiment.demo import demo_config
from isfl.experiment.run import LocalHost
from isfl.federation import run_round, start
from isfl.federation.values import Weights
from isfl.problem.config import Config, config_from
from isfl.problem.problem import prepare
from isfl.smoothness import ESTIMATORS, LipschitzEstimate
from isfl.theory.arrays import Array
from isfl.theory.probabilities import sampling_probabilities


def measure(quick: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    seeds = (0,) if quick else (0, 1, 2)
    looks = [look for seed in seeds for look in _looks(seed)]
    accuracy = {method: [_accuracy(method, seed) for seed in seeds] for method in ESTIMATORS}
    rows = [
        {
            "method": method,
            "rank correlation of L": mean(look["correlation"][method] for look in looks),
            "distance of q": mean(look["distance"][method] for look in looks),
            "CPU against exact": median(look["seconds"][method] / look["seconds"]["exact"] for look in looks),
            "D_S in %": _percent([standard for standard, _ in accuracy[method]]),
            "D_G in %": _percent([held for _, held in accuracy[method]]),
        }
        for method in ESTIMATORS
    ]
    return {
        "title": f"Estimators of L on the demo's setting, {'one seed' if quick else f'{len(seeds)} seeds'}",
        "rows": rows,
        "missed": [],
        "notes": [
            "rank correlation: Spearman's, over the classes of a client, mean over clients and rounds",
            "distance of q: half the sum of absolute differences to the probabilities from exact values (0 to 1)",
        ],
        "looks": looks,
        "accuracy": accuracy,
    }


def _percent(shares: list[float]) -> str:
    """Return the mean, with the standard deviation for more than one value."""
    spread = f" ± {100 * stdev(shares):.1f}" if len(shares) > 1 else ""
    return f"{100 * mean(shares):.1f}{spread}"


def _config(method: str, seed: int) -> Config:
    raw = demo_config().model_dump(mode="json")
    scheme = {"name": "isfl", "sampling": {"estimator": method}}
    return config_from({**raw, "seed": seed, "scheme": scheme}, "benchmark")


def _looks(seed: int) -> list[dict[str, Any]]:
    """Return the values of all methods for the same models in each round."""
    config = _config("exact", seed)
    engine = LocalHost().engine(prepare(config), config, Path())
    state = start(config, engine)
    found: list[dict[str, Any]] = []
    plain = engine.server.lipschitz

    def watched(local: list[Weights], reference: Weights) -> LipschitzEstimate:
        estimates, seconds = {}, {}
        for method in ESTIMATORS:
            engine.settings = _config(method, seed)
            began = time.process_time()
            estimates[method] = plain(local, reference)
            seconds[method] = time.process_time() - began
        engine.settings = config
        assert state.counts is not None
        shares = state.counts / state.sizes[:, None]
        drawn = {m: sampling_probabilities(state.target, shares, e.values) for m, e in estimates.items()}
        exact = estimates["exact"].values
        found.append(
            {
                "seconds": seconds,
                "correlation": {m: _correlation(e.values, exact) for m, e in estimates.items()},
                "distance": {m: float(np.abs(q - drawn["exact"]).sum(1).mean() / 2) for m, q in drawn.items()},
            }
        )
        return estimates["exact"]

    engine.server.lipschitz = watched  # type: ignore[method-assign,assignment]
    for _ in range(config.training.rounds):
        state, _ = run_round(state, config, engine)
    return found


def _correlation(one: Array, other: Array) -> float:
    """Return Spearman's rank correlation of each row, over the classes known to both."""
    values = []
    for a, b in zip(one, other, strict=True):
        known = np.isfinite(a) & np.isfinite(b)
        ranks = [np.argsort(np.argsort(row[known])) for row in (a, b)]
        if known.sum() > 2:
            values.append(float(np.corrcoef(np.stack(ranks).astype(float))[0, 1]))
    return mean(values)


def _accuracy(method: str, seed: int) -> tuple[float, float]:
    config = _config(method, seed)
    engine = LocalHost().engine(prepare(config), config, Path())
    state = start(config, engine)
    for _ in range(config.training.rounds):
        state, report = run_round(state, config, engine)
    assert report.standard is not None
    clients = report.clients.values()
    return report.standard.total.accuracy, sum(s.correct for s in clients) / sum(s.samples for s in clients)
