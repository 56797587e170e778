"""How the cost of a round grows with clients, samples, public samples, classes and parameters.

Each quantity is doubled a few times with the others fixed; CPU seconds of one process, and the exponent of the straight
line that fits them on logarithmic axes: 1 is proportional. Random images: time does not depend on what they show.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from isfl.data import Dataset
from isfl.engines import LocalEngine
from isfl.federation import Settings, start
from isfl.federation.values import TrainTask
from isfl.models.mlp import mlp
from isfl.models.resnet import resnet8

SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Size:
    clients: int = 4
    samples: int = 128
    public: int = 64
    classes: int = 10
    width: float = 0.5
    units: int | None = None
    """Of the hidden layers of a multi-layer perceptron, in place of ResNet8."""

    def model(self) -> nn.Module:
        if self.units is not None:
            return mlp(SHAPE, self.classes, self.units / 64)
        return resnet8(SHAPE, self.classes, self.width)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model().parameters())


SWEEPS = {
    "clients K": [replace(Size(), clients=k) for k in (2, 4, 8, 16)],
    "samples |D_k|": [replace(Size(), samples=n) for n in (128, 256, 512, 1024)],
    "public |D_L|": [replace(Size(), public=n) for n in (64, 128, 256, 512)],
    "classes C": [replace(Size(), classes=c, public=1000) for c in (10, 100, 1000)],
    "channels of ResNet8": [replace(Size(), width=w) for w in (0.5, 1.0, 2.0, 4.0)],
    "parameters of an MLP": [replace(Size(), units=u) for u in (32, 300, 1700, 5800)],
}
"""The MLP has 0.1 to 51 million parameters."""


def measure(quick: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    sweeps, turns = ({name: sizes[: 2 if quick else 4] for name, sizes in SWEEPS.items()}, 1 if quick else 3)
    _cost(Size())  # warm-up
    series: dict[str, dict[str, list[float]]] = {}
    for name, sizes in sweeps.items():
        costs = [[_cost(size) for size in sizes] for _ in range(turns)]
        series[name] = {
            "size": [float(_abscissa(name, size)) for size in sizes],
            "training": [median(turn[i][0] for turn in costs) for i in range(len(sizes))],
            "lipschitz": [median(turn[i][1] for turn in costs) for i in range(len(sizes))],
        }
    return {
        "title": "How cost grows: exponents of CPU seconds",
        "rows": [
            {"grows with": name, "training": _exponent(s, "training"), "Lipschitz update": _exponent(s, "lipschitz")}
            for name, s in series.items()
        ],
        "missed": [],
        "notes": [
            "1 is proportional, 0 not at all; one local epoch, batch 64, from 4 clients x 128 images, |D_L| = 64 (1000 "
            "for classes), ResNet8 at half width"
        ],
        "series": series,
    }


def _abscissa(name: str, size: Size) -> int:
    by_name = {
        "clients K": size.clients,
        "samples |D_k|": size.samples,
        "public |D_L|": size.public,
        "classes C": size.classes,
        "channels of ResNet8": round(32 * size.width),
    }
    return by_name.get(name) or size.parameters


def _exponent(series: dict[str, list[float]], cost: str) -> float:
    return float(np.polyfit(np.log(series["size"]), np.log(series[cost]), 1)[0])


def _cost(size: Size) -> tuple[float, float]:
    """Return CPU seconds of all clients' training, and of the Lipschitz update."""
    rng = np.random.default_rng(0)

    def images(n: int) -> Dataset:
        pixels = rng.integers(0, 256, (n, *SHAPE), dtype=np.uint8)
        return Dataset(torch.from_numpy(pixels), torch.from_numpy(np.arange(n) % size.classes), size.classes)

    settings = Settings.model_validate({"scheme": "isfl", "training": {"local_epochs": 1, "batch_size": 64}})
    clients, public = [images(size.samples) for _ in range(size.clients)], images(size.public)
    with LocalEngine(size.model(), clients, public, public, settings) as engine:
        state = start(settings, engine)
        began = time.process_time()
        updates = engine.train([TrainTask(1, k, state.model, state.target[k]) for k in range(size.clients)])
        trained = time.process_time()
        engine.server.lipschitz([update.model for update in updates], state.model)
        return trained - began, time.process_time() - trained


def draw(result: dict[str, Any], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = -(-len(result["series"]) // 2)
    figure, axes = plt.subplots(2, columns, figsize=(11, 6.4), layout="constrained", sharey=True)
    for axis, (name, series) in zip(axes.flat, result["series"].items(), strict=True):
        for cost, marker, label in (("training", "o-", "training"), ("lipschitz", "s--", "Lipschitz update")):
            axis.loglog(series["size"], series[cost], marker, label=f"{label}: {_exponent(series, cost):.2f}")
        axis.set_xlabel(name)
        axis.set_xticks(series["size"], [f"{value:,.0f}" for value in series["size"]], rotation=30, minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(title="exponent", fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("CPU seconds")
    figure.savefig(file, dpi=130)
    plt.close(figure)
