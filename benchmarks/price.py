"""Cost of ISFL relative to FedAvg: whole rounds in the proportions of the paper.

K = 10, E_l = 5, |D_k| = 1000 and |D_L| = 500 of real CIFAR-10 images, ResNet8, batch 128, with all sets divided by the
same number: a round of full size takes minutes, in which a host changes more than there is to measure. CPU seconds of
one process; schemes take turns. The bars are about rounds without evaluation,
where the extra cost is largest; the cost with evaluation, as in the default configuration, is listed too.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.parts import MeasureError
from isfl.errors import UserError
from isfl.experiment.run import LocalHost
from isfl.federation import run_round, start
from isfl.problem.config import config_from
from isfl.problem.problem import prepare

SCHEMES: dict[str, Any] = {
    "FedAvg": "fedavg",
    "ISFL, exact": {"name": "isfl", "sampling": {"estimator": "exact"}},
    "ISFL, class-mean": {"name": "isfl", "sampling": {"estimator": "class-mean"}},
    "ISFL, last-layer": {"name": "isfl", "sampling": {"estimator": "last-layer"}},
}
BARS = {"ISFL, exact": 1.12, "ISFL, last-layer": 1.04}
WARM_UP = 50
"""The factor by which sizes are reduced in the warm-up round."""


def measure(quick: bool) -> dict[str, Any]:
    shrink, turns = (10, 2) if quick else (5, 4)
    torch.set_num_threads(1)
    try:
        for scheme in SCHEMES.values():
            _World(scheme, WARM_UP).round()
        worlds = {name: _World(scheme, shrink) for name, scheme in SCHEMES.items()}
    except UserError as error:
        raise MeasureError(str(error)) from None
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in SCHEMES}
    for turn in range(turns):
        # Forwards, then backwards: a slow drift of the load is then equal for all schemes.
        for name in (tuple(SCHEMES), tuple(reversed(SCHEMES)))[turn % 2]:
            rounds[name].append(worlds[name].round())
    whole = {name: _ratio(rounds[name], rounds["FedAvg"], evaluated=True) for name in SCHEMES}
    bare = {name: _ratio(rounds[name], rounds["FedAvg"], evaluated=False) for name in SCHEMES}
    return {
        "title": f"A round of ISFL beside one of FedAvg, all sets divided by {shrink}",
        "rows": [
            {
                "scheme": name,
                "CPU seconds a round": mean(total - evaluation for total, evaluation in rounds[name]),
                "of evaluation": mean(evaluation for _, evaluation in rounds[name]),
                "times FedAvg": f"{bare[name]:.3f}",
                "with evaluation": f"{whole[name]:.3f}",
            }
            for name in SCHEMES
        ],
        "missed": [
            f"{name} costs {bare[name]:.3f} times a FedAvg round; the limit is {bar}"
            for name, bar in BARS.items()
            if bare[name] > bar
        ],
        "samples": rounds,
    }


def _ratio(own: list[tuple[float, float]], plain: list[tuple[float, float]], *, evaluated: bool) -> float:
    """Return the ratio of the totals over all turns, with or without evaluation."""
    mine, theirs = (sum(total - (0 if evaluated else evaluation) for total, evaluation in of) for of in (own, plain))
    return mine / theirs


class _World:
    """A federation that runs one round at a time."""

    def __init__(self, scheme: Any, shrink: int) -> None:
        self.config = config_from(
            {
                "scheme": scheme,
                "data": {"name": "cifar10", "public": 500 // shrink},
                "split": {"kind": "iid", "clients": 10, "samples_per_client": 1000 // shrink},
                "model": {"name": "resnet8"},
                "training": {"rounds": 1000, "evaluate_every": 1000},  # evaluated, and timed, apart from the round
            },
            "benchmark",
        )
        self.engine = LocalHost().engine(prepare(self.config), self.config, Path())
        self.state = start(self.config, self.engine)
        data = self.engine.server.worker.data
        data["test"] = data["test"].rows(0, len(data["test"]) // shrink)

    def round(self) -> tuple[float, float]:
        """Return CPU seconds of a round with its evaluation, and of the evaluation alone."""
        began = time.process_time()
        self.state, _ = run_round(self.state, self.config, self.engine)
        trained = time.process_time()
        self.engine.evaluate(self.state.model)
        ended = time.process_time()
        return ended - began, ended - trained
