"""Our 3x3 convolutions beside torch's, for the layers of ResNet8: CPU time of one thread, and errors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.parts import MeasureError
from isfl.kernels import available
from isfl.kernels.convolve import convolve

LAYERS = ((32, 64, 32), (64, 64, 16), (64, 128, 16), (128, 128, 8))
"""Channels in and out, and the side of the image."""

Convolution = Callable[[Tensor, Tensor], Tensor]
WAYS: dict[str, Convolution] = {"torch": partial(F.conv2d, padding=1), "ours": lambda x, w: convolve(x, w, None)}


def measure(quick: bool) -> dict[str, Any]:
    if not available():
        raise MeasureError("there is no C compiler: our convolutions are torch's")
    batch, turns = (32, 5) if quick else (128, 15)
    torch.set_num_threads(1)
    rows = [_row(*layer, batch, turns) for layer in LAYERS]
    return {"title": f"3x3 convolutions of {batch} images, milliseconds of one core", "rows": rows, "missed": []}


def _row(inputs: int, outputs: int, side: int, batch: int, turns: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((batch, inputs, side, side), (outputs, inputs, 3, 3), (batch, outputs, side, side))
    x, weight, gradient = (
        torch.randn(size, generator=generator).contiguous(memory_format=torch.channels_last) for size in sizes
    )
    seconds: dict[tuple[str, bool], list[float]] = {(way, whole): [] for way in WAYS for whole in (False, True)}
    for turn in range(turns + 1):
        for (way, whole), taken in seconds.items():
            began = time.process_time()
            _pass(WAYS[way], x, weight, gradient if whole else None)
            if turn > 0:  # the first turn is a warm-up
                taken.append(time.process_time() - began)
    middle = {key: statistics.median(taken) for key, taken in seconds.items()}
    truth = _pass(WAYS["torch"], x.double(), weight.double(), gradient.double())
    return {
        "layer": f"{inputs} to {outputs}, {side}x{side}",
        **{f"{way}, forward": 1e3 * middle[way, False] for way in WAYS},
        **{f"{way}, with gradients": 1e3 * middle[way, True] for way in WAYS},
        "times as fast": middle["torch", True] / middle["ours", True],
        **{f"{way}, largest error": f"{_error(_pass(WAYS[way], x, weight, gradient), truth):.0e}" for way in WAYS},
    }


def _pass(convolution: Convolution, x: Tensor, weight: Tensor, gradient: Tensor | None) -> list[Tensor]:
    """Return the result, and its gradients if an output gradient is given."""
    leaves = [x.detach().requires_grad_(gradient is not None), weight.detach().requires_grad_(gradient is not None)]
    result = convolution(leaves[0], leaves[1])
    return [result.detach()] + ([] if gradient is None else list(torch.autograd.grad(result, leaves, gradient)))


def _error(found: list[Tensor], truth: list[Tensor]) -> float:
    """Return the error of result and gradients relative to the largest value, against double precision."""
    pairs = zip(found, truth, strict=True)
    return max(float((a.double() - b).abs().max() / b.abs().max()) for a, b in pairs)
