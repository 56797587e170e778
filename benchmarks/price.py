"""What ISFL costs beside FedAvg: whole rounds without evaluation, in the proportions of the paper.

K = 10, E_l = 5, |D_k| = 1000 and |D_L| = 500 of real CIFAR-10 images, ResNet8, batch 128; smaller versions divide
|D_k| and |D_L| by the same number. CPU seconds of one process; schemes take turns.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from benchmarks.parts import MeasureError
from isfl.engines import LocalEngine
from isfl.errors import UserError
from isfl.experiment.config import config_from
from isfl.experiment.run import begin
from isfl.federation import FederationState, run_round
from isfl.federation.settings import Settings

SCHEMES: dict[str, Any] = {
    "FedAvg": "fedavg",
    "ISFL, exact": {"name": "isfl", "sampling": {"estimator": "exact"}},
    "ISFL, class-mean": {"name": "isfl", "sampling": {"estimator": "class-mean"}},
    "ISFL, last-layer": {"name": "isfl", "sampling": {"estimator": "last-layer"}},
}
BARS = {"ISFL, exact": 1.12, "ISFL, last-layer": 1.04}


def measure(quick: bool) -> dict[str, Any]:
    shrink, turns = (10, 3) if quick else (4, 2)
    torch.set_num_threads(1)
    try:
        worlds = {name: _world(scheme, shrink) for name, scheme in SCHEMES.items()}
    except UserError as error:
        raise MeasureError(str(error)) from None
    seconds: dict[str, list[float]] = {name: [] for name in SCHEMES}
    for turn in range(turns + 1):
        for name, (settings, engine, state) in worlds.items():
            began = time.process_time()
            state, _ = run_round(state, settings, engine)
            if turn > 0:  # the first is to warm up
                seconds[name].append(time.process_time() - began)
            worlds[name] = (settings, engine, state)
    ratios = {
        name: median(own / plain for own, plain in zip(seconds[name], seconds["FedAvg"], strict=True))
        for name in SCHEMES
    }
    return {
        "title": f"A round of ISFL beside one of FedAvg, |D_k| and |D_L| divided by {shrink}",
        "rows": [
            {"scheme": name, "CPU seconds a round": median(seconds[name]), "times FedAvg": f"{ratios[name]:.3f}"}
            for name in SCHEMES
        ],
        "missed": [
            f"{name} costs {ratios[name]:.3f} times a FedAvg round; at most {bar} is due"
            for name, bar in BARS.items()
            if ratios[name] > bar
        ],
        "samples": seconds,
    }


def _world(scheme: Any, shrink: int) -> tuple[Settings, LocalEngine, FederationState]:
    config = config_from(
        {
            "scheme": scheme,
            "data": {"name": "cifar10", "public": 500 // shrink},
            "split": {"kind": "iid", "clients": 10, "samples_per_client": 1000 // shrink},
            "model": {"name": "resnet8"},
            "training": {"rounds": 1000, "evaluate_every": 1000},
        },
        "benchmark",
    )
    _, engine, state = begin(config)
    return config, engine, state
