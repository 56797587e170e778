"""Accuracy after 100 rounds with compiled layers beside torch's: rounding errors must not add up.

Real CIFAR-10, ResNet8 at half width, four clients, FedAvg; one run per way and seed. Differences are paired by seed.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from benchmarks.parts import MeasureError
from isfl.errors import UserError
from isfl.experiment.run import LocalHost
from isfl.federation import run_round, start
from isfl.kernels import available
from isfl.problem.config import config_from
from isfl.problem.problem import prepare

WAYS = ("torch", "fast")
SEEDS = (0, 1, 2)


def measure(quick: bool) -> dict[str, Any]:
    if not available():
        raise MeasureError("there is no C compiler: our layers are torch's")
    rounds = 5 if quick else 100
    torch.set_num_threads(1)
    found = {way: [_accuracy(way, seed, rounds) for seed in SEEDS] for way in WAYS}
    return {
        "title": f"Accuracy on D_S after {rounds} rounds in per cent, by seed",
        "rows": [{"layers": way, **{f"seed {s}": v for s, v in zip(SEEDS, found[way], strict=True)}} for way in WAYS],
        "missed": missed(found),
        "notes": [
            f"spread of torch's over the seeds: {stdev(found['torch']):.2f}; "
            f"mean difference: {mean(differences(found)):+.2f}"
        ],
    }


def differences(found: dict[str, list[float]]) -> list[float]:
    return [ours - theirs for theirs, ours in zip(found["torch"], found["fast"], strict=True)]


def missed(found: dict[str, list[float]]) -> list[str]:
    """The mean difference must be within the spread over seeds."""
    difference, spread = mean(differences(found)), stdev(found["torch"])
    if abs(difference) <= spread:
        return []
    return [f"accuracy differs by {difference:+.2f} points on average; the spread over seeds is {spread:.2f}"]


def _accuracy(way: str, seed: int, rounds: int) -> float:
    config = config_from(
        {
            "seed": seed,
            "scheme": "fedavg",
            "data": {"name": "cifar10", "public": 10},
            "split": {"kind": "dirichlet", "clients": 4, "samples_per_client": 256, "alpha": 1.0},
            "model": {"name": "resnet8", "width": 0.5},
            "training": {"rounds": rounds, "local_epochs": 1, "evaluate_every": rounds, "convolutions": way},
        },
        "benchmark",
    )
    try:
        engine = LocalHost().engine(prepare(config), config, Path())
    except UserError as error:
        raise MeasureError(str(error)) from None
    state = start(config, engine)
    for _ in range(rounds):
        state, report = run_round(state, config, engine)
    assert report.standard is not None
    return 100 * report.standard.total.accuracy
