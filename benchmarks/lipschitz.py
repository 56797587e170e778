"""CPU time of the Lipschitz estimators against the authors' way, for ResNet8 on one thread.

The authors' way: for every client and every sample one backward pass of the local and one of the global model, 2 K N
single passes. It is measured on some of the samples and scaled, since every pass costs the same. All ways take turns,
so that other load on the machine affects all of them; only ratios are meaningful.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.parts import turns_each
from isfl.kernels import with_fast_convolutions
from isfl.models.resnet import resnet8
from isfl.smoothness import ESTIMATORS, estimate_lipschitz

BAR = 0.40
"""Limit for the CPU time of `exact`, as a share of the authors' way."""
CLIENTS, SAMPLES, CLASSES = 10, 500, 10
AUTHORS = "authors' way"
FLOOR = "plain forward and backward"


def measure(quick: bool) -> dict[str, Any]:
    """Return CPU times relative to the authors' way: the median over repetitions that each run all ways.

    `quick` takes 96 of the samples; the check of the rules, done once for all samples, then weighs more.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measure(*((96, 32, 3) if quick else (SAMPLES, 100, 5)))
    finally:
        torch.set_num_threads(threads)


def _measure(samples: int, singles: int, repetitions: int) -> dict[str, Any]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = resnet8((3, 32, 32), CLASSES).eval()
        images = torch.randint(0, 256, (samples, 3, 32, 32)).float() / 127.5 - 1
        labels = torch.randint(0, CLASSES, (samples,))
        usual = copy.deepcopy(plain).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # As in the engine.
        center = with_fast_convolutions(copy.deepcopy(usual))
        local = [_nudged(center) for _ in range(CLIENTS)]
    last = images.to(memory_format=torch.channels_last)

    def authors() -> None:
        _passes(plain, images[:singles], labels[:singles], 1)

    def floor() -> None:
        for _ in range(1 + CLIENTS):
            _passes(usual, last, labels, 32)

    ways: dict[str, tuple[Callable[[], object], float]] = {
        AUTHORS: (authors, 2 * CLIENTS * samples / singles),
        FLOOR: (floor, 1.0),
    }
    for method in ESTIMATORS:
        ways[method] = (partial(estimate_lipschitz, local, center, last, labels, CLASSES, method=method), 1.0)

    _passes(center, last[:32], labels[:32], 32)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, (work, scale) in ways.items():
            start = time.process_time()
            work()
            seconds[name].append(scale * (time.process_time() - start))
    rounds = seconds[AUTHORS]
    ratios = {name: [t / whole for t, whole in zip(of, rounds, strict=True)] for name, of in seconds.items()}
    share = statistics.median(ratios["exact"])
    return {
        "title": f"The Lipschitz update, ResNet8, K = {CLIENTS}, |D_L| = {samples}",
        "rows": [
            {
                "way": name,
                "CPU seconds": statistics.median(of),
                "of the authors' way": f"{statistics.median(ratios[name]):.1%}",
                "worst": f"{max(ratios[name]):.1%}",
            }
            for name, of in seconds.items()
        ],
        "missed": [f"exact takes {share:.1%} of the authors' way; the limit is {BAR:.0%}"] if share > BAR else [],
        "notes": [f"the authors' way measured on {singles} passes of one model and scaled; {turns_each(repetitions)}"],
        "samples": seconds,
    }


def _nudged(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape))
    return other


def _passes(model: nn.Module, inputs: Tensor, labels: Tensor, batch: int) -> None:
    """Compute the gradients of batches with respect to all parameters."""
    for start in range(0, len(labels), batch):
        some = slice(start, start + batch)
        loss = F.cross_entropy(model(inputs[some]), labels[some], reduction="sum")
        torch.autograd.grad(loss, list(model.parameters()))
