"""A training step and an evaluation pass of ResNet8 with compiled layers beside torch's: CPU time of one thread.

Random bytes in the shape of CIFAR-10: no time depends on the values. Both ways take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.parts import MeasureError
from isfl.data import Dataset
from isfl.federation import Settings
from isfl.federation.evaluation import outcomes
from isfl.federation.preparation import prepared
from isfl.kernels import available
from isfl.models import ModelSettings, build_model

BATCH, WIDTHS = 128, (1.0, 0.5)
MOST = 0.55
"""Of torch's time, for either."""
WAYS = ("torch", "fast")


def measure(quick: bool) -> dict[str, Any]:
    if not available():
        raise MeasureError("there is no C compiler: our layers are torch's")
    turns, images = (3, 250) if quick else (9, 1000)
    torch.set_num_threads(1)
    rows, ratios = [], {}
    for width in WIDTHS:
        for work, taken in _seconds(width, images, turns).items():
            ratio = median(ours / theirs for theirs, ours in taken)
            ratios[f"{work}, width {width:g}"] = ratio
            middle = [1e3 * median(column) for column in zip(*taken, strict=True)]
            rows.append({"work": work, "width": f"{width:g}", **dict(zip(WAYS, middle, strict=True)), "ratio": ratio})
    title = f"A training step of {BATCH} and an evaluation of {images} images, ResNet8, milliseconds of one core"
    notes = [f"ratio: median over {turns} turns of the two, one after the other"]
    return {"title": title, "rows": rows, "notes": notes, "missed": missed(ratios)}


def missed(ratios: Mapping[str, float]) -> list[str]:
    return [
        f"{work}: {ratio:.2f} of torch's time; at most {MOST} is due" for work, ratio in ratios.items() if ratio > MOST
    ]


def _seconds(width: float, images: int, turns: int) -> dict[str, list[tuple[float, ...]]]:
    """CPU seconds of torch's and of compiled layers, turn by turn."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8, generator=generator)
    data = Dataset(inputs, torch.randint(0, 10, (images,), generator=generator), 10)
    model = build_model(ModelSettings(name="resnet8", width=width), (3, 32, 32), 10, seed=0)
    models = [prepared(model, Settings.model_validate({"training": {"convolutions": way}})) for way in WAYS]
    works = {"training": [_step(model, data) for model in models], "evaluation": [_pass(m, data) for m in models]}
    return {
        work: [tuple(map(_cpu, ways)) for _ in range(turns + 1)][1:]  # the first turn is to warm up
        for work, ways in works.items()
    }


def _step(model: nn.Module, data: Dataset) -> Callable[[], object]:
    parameters = list(model.parameters())
    optimizer = Settings().training.optimizer.stepper(parameters)

    def step() -> None:
        inputs, labels = data.batch(slice(0, BATCH))
        for parameter in parameters:
            parameter.grad = None
        F.cross_entropy(model.train()(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _pass(model: nn.Module, data: Dataset) -> Callable[[], object]:
    return lambda: outcomes(model, data)


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
