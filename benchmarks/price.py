"""Cost of ISFL relative to FedAvg: whole rounds in the proportions of the paper, in one process and in workers.

E_l = 5, |D_k| = 1000 and |D_L| = 500 of real CIFAR-10 images, ResNet8, batch 128, with all sets divided by the
same number: a round of full size takes minutes, in which a host changes more than there is to measure. CPU seconds of
all processes; schemes take turns. The bars are about rounds without evaluation, where the extra cost is largest; the
cost with evaluation, as in the default configuration, is listed too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, Self

import torch

from benchmarks.parts import MeasureError
from benchmarks.process_tree import CpuMeter, Tree, subreaper
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
SETTINGS = ((10, 1), (10, 2), (20, 2))
"""Clients and processes."""
BARS = {"ISFL, exact": 1.08, "ISFL, last-layer": 1.03}
WARM_UP = 50
"""The factor by which sizes are reduced in the warm-up round."""


def measure(quick: bool) -> dict[str, Any]:
    shrink, turns = (10, 2) if quick else (5, 4)
    torch.set_num_threads(1)
    rows, missed, samples = [], [], {}
    for clients, workers in SETTINGS:
        try:
            rounds = _rounds(clients, workers, shrink, turns)
        except UserError as error:
            raise MeasureError(str(error)) from None
        where = f"{clients} clients, {workers} process{'es' if workers > 1 else ''}"
        samples[where] = rounds
        ratios = {name: _ratio(rounds[name], rounds["FedAvg"], evaluated=False) for name in SCHEMES}
        rows += [
            {
                "setting": where,
                "scheme": name,
                "CPU seconds a round": mean(total - evaluation for total, evaluation in rounds[name]),
                "of evaluation": mean(evaluation for _, evaluation in rounds[name]),
                "times FedAvg": f"{ratios[name]:.3f}",
                "with evaluation": f"{_ratio(rounds[name], rounds['FedAvg'], evaluated=True):.3f}",
            }
            for name in SCHEMES
        ]
        missed += judged(where, ratios)
    return {
        "title": f"A round of ISFL beside one of FedAvg, all sets divided by {shrink}",
        "rows": rows,
        "missed": missed,
        "samples": samples,
    }


def judged(where: str, ratios: Mapping[str, float]) -> list[str]:
    return [
        f"{name} costs {ratios[name]:.3f} times a FedAvg round ({where}); at most {bar} is due"
        for name, bar in BARS.items()
        if ratios[name] > bar
    ]


Spent = tuple[float, float]
"""CPU seconds of a round with its evaluation, and of the evaluation alone."""


def _rounds(clients: int, workers: int, shrink: int, turns: int) -> dict[str, list[Spent]]:
    with subreaper(), ExitStack() as stack:
        for scheme in SCHEMES.values():
            with _World(scheme, clients, workers, WARM_UP) as world:
                world.round()
        worlds = {name: stack.enter_context(_World(s, clients, workers, shrink)) for name, s in SCHEMES.items()}
        rounds: dict[str, list[Spent]] = {name: [] for name in SCHEMES}
        for turn in range(turns):
            # Forwards, then backwards: a slow drift of the load is then equal for all schemes.
            for name in (tuple(SCHEMES), tuple(reversed(SCHEMES)))[turn % 2]:
                rounds[name].append(worlds[name].round())
    return rounds


def _ratio(own: Sequence[Spent], plain: Sequence[Spent], *, evaluated: bool) -> float:
    """Return the ratio of the totals over all turns, with or without evaluation."""
    mine, theirs = (sum(total - (0 if evaluated else evaluation) for total, evaluation in of) for of in (own, plain))
    return mine / theirs


class _World:
    """A federation that runs one round at a time."""

    def __init__(self, scheme: Any, clients: int, workers: int, shrink: int) -> None:
        self.config = config_from(
            {
                "scheme": scheme,
                "data": {"name": "cifar10", "public": 500 // shrink},
                "split": {"kind": "iid", "clients": clients, "samples_per_client": 1000 // shrink},
                "model": {"name": "resnet8"},
                "training": {"rounds": 1000, "evaluate_every": 1000},  # evaluated, and timed, apart from the round
            },
            "benchmark",
        )
        problem = prepare(self.config)
        problem = replace(problem, test=problem.test.rows(0, len(problem.test) // shrink))
        self.tree = Tree()
        self.engine = LocalHost(workers).engine(problem, self.config, Path())
        self.state = start(self.config, self.engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def round(self) -> Spent:
        meter, began = CpuMeter(self.tree), time.process_time()

        def spent() -> float:
            return meter.seconds() + time.process_time() - began

        self.state, _ = run_round(self.state, self.config, self.engine)
        trained = spent()
        self.engine.evaluate(self.state.model)
        ended = spent()
        return ended, ended - trained
