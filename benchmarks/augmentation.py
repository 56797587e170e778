"""Cost of crop and flip relative to a training step: CPU time of one thread, ResNet8, batch 128.

Random bytes in the shape of CIFAR-10: neither time depends on the values. Augmentation and step take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from isfl.data import Dataset
from isfl.data.transforms import augmentation
from isfl.data.transforms.crop import Crop
from isfl.data.transforms.flip import Flip
from isfl.federation import Settings
from isfl.federation.preparation import prepared
from isfl.models import ModelSettings, build_model

BATCH, WIDTHS = 128, (1.0, 0.5)
MOST = 0.05
"""Share of a training step."""


def measure(quick: bool) -> dict[str, Any]:
    turns = 5 if quick else 15
    torch.set_num_threads(1)
    seconds = {width: _seconds(width, turns) for width in WIDTHS}
    shares = {width: median(augment / step for augment, step in taken) for width, taken in seconds.items()}
    return {
        "title": f"Crop and flip of {BATCH} images beside a training step of ResNet8, milliseconds of one core",
        "rows": [
            {
                "width": f"{width:g}",
                "crop and flip": 1e3 * median(augment for augment, _ in taken),
                "training step": 1e3 * median(step for _, step in taken),
                "share": f"{shares[width]:.3f}",
            }
            for width, taken in seconds.items()
        ],
        "notes": [f"share: median over {turns} turns of the two, one after the other"],
        "missed": missed(shares),
        "samples": seconds,
    }


def missed(shares: Mapping[float, float]) -> list[str]:
    return [
        f"augmentation takes {share:.3f} of a training step at width {width:g}; the limit is {MOST}"
        for width, share in shares.items()
        if share >= MOST
    ]


def _seconds(width: float, turns: int) -> list[tuple[float, float]]:
    """Return CPU seconds of augmentation and of a training step for each turn."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (BATCH, 3, 32, 32), dtype=torch.uint8, generator=generator)
    data = Dataset(images, torch.randint(0, 10, (BATCH,), generator=generator), 10)
    settings = Settings()
    model = prepared(build_model(ModelSettings(name="resnet8", width=width), (3, 32, 32), 10, seed=0), settings)
    parameters = list(model.parameters())
    optimizer = settings.training.optimizer.stepper(parameters)
    augment = augmentation([Crop(), Flip()], seed=0, round=1, client=0)
    assert augment is not None
    transform, everything = augment(0), np.arange(BATCH)

    def step() -> None:
        inputs, labels = data.batch(everything)
        for parameter in parameters:
            parameter.grad = None
        F.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    taken = [(_cpu(lambda: transform(images)), _cpu(step)) for _ in range(turns + 1)]
    return taken[1:]  # the first turn is a warm-up


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
