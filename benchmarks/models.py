"""Rounds of other networks than ResNet8: our engine with two workers beside the plain loop, and where its time goes.

ResNet9, ResNet8 with GroupNorm, a multi-layer perceptron and a small transformer on tokens. Both take turns, each in
its own process tree.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bars import OURS, PLAIN, Summary, summarise
from benchmarks.contest import Contestant, Visit, contest, visit
from benchmarks.parts import MeasureError, turns_each
from benchmarks.peers import CLIENTS, PATIENCE, contestant, write_data

LEAST_SPEED = 1.0
"""Relative to the plain loop."""


@dataclass(frozen=True)
class Size:
    samples: int
    """Per client."""
    rounds: int
    """A round of a small network takes less than a second: the median of several counts."""


NETWORKS = {
    "resnet9": Size(128, 1),
    "groupnorm": Size(256, 1),
    "mlp": Size(1000, 9),
    "transformer": Size(256, 3),
}
KINDS = {
    "convolutions": ("_Convolution", "conv"),
    "normalisation": ("_Normalise", "norm"),
    "matrix products": ("addmm", "aten::mm", "bmm", "attention"),
    "optimiser": ("addcdiv", "addcmul", "lerp", "aten::sqrt", "foreach"),
}
"""Parts of the names of operations; the first kind that fits counts."""


def measure(quick: bool) -> dict[str, Any]:
    repetitions, rows, missed = 1 if quick else 3, [], []
    for name, size in NETWORKS.items():
        samples = size.samples // 4 if quick else size.samples
        found = _contest(name, samples, size.rounds, repetitions)
        ours, plain = found[OURS], found[PLAIN]
        rows.append(_row(name, samples, ours, plain))
        missed += judged(name, ours)
    for row in rows:  # after the contests: torch in this process would share its pages with contestants
        row["where a step's time goes"] = _shares(row["network"])
    return {
        "title": f"Rounds of other networks: {CLIENTS} clients, one epoch, batch 128, two workers or the plain loop",
        "rows": rows,
        "missed": missed,
        "notes": [f"{turns_each(repetitions)}; inputs are CIFAR-10 images, or sequences of 64 tokens"],
    }


def judged(name: str, ours: Summary) -> list[str]:
    assert ours.speed is not None
    if ours.speed >= LEAST_SPEED:
        return []
    return [f"{name} is {ours.speed:.2f} times as fast as the plain loop; the minimum is {LEAST_SPEED}"]


def _row(name: str, samples: int, ours: Summary, plain: Summary) -> dict[str, Any]:
    return {
        "network": name,
        "samples a client": samples,
        "plain, seconds a round": plain.seconds,
        "ours": ours.seconds,
        "times as fast": ours.speed,
        "CPU of the plain loop's": ours.cpu_seconds / plain.cpu_seconds,
    }


def _contest(network: str, samples: int, rounds: int, repetitions: int) -> dict[str, Summary]:
    with tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        folder = Path(scratch)
        write_data(folder, CLIENTS * samples, *(["tokens"] if network == "transformer" else []))
        work = partial(contestant, python=sys.executable, folder=folder, network=network, rounds=rounds)
        contestants = [
            work(PLAIN, module="plain", threads=2),
            work(OURS, module="ours", workers=2),
        ]

        def one_visit(who: Contestant, repetition: int) -> Visit:
            result = visit(who, repetition, rounds, CLIENTS * samples, PATIENCE)
            if result.failure:
                raise MeasureError(f"{network}, {who.name}: {result.failure}")
            return result

        return summarise(contest(contestants, repetitions, one_visit))


def _shares(name: str) -> str:
    """Return the largest parts of a training step of our engine, in per cent of its time."""
    import torch
    import torch.nn.functional as F
    from torch.profiler import profile

    from benchmarks.contestants.networks import LENGTH, WORDS, network
    from isfl.federation import Settings
    from isfl.federation.preparation import prepared
    from isfl.models import resnet

    torch.set_num_threads(1)
    model = prepared(network(name, resnet), Settings()).train()
    shape = (128, LENGTH) if name == "transformer" else (128, 3, 32, 32)
    inputs = torch.randint(0, WORDS, shape) if name == "transformer" else torch.randn(shape)
    labels, parameters = torch.arange(128) % 10, list(model.parameters())
    optimizer = Settings().training.optimizer.stepper(parameters)

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        F.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    step()
    with profile() as seen:
        for _ in range(3):
            step()
    spent: Counter[str] = Counter()
    for event in seen.key_averages():
        kind = next((kind for kind, parts in KINDS.items() if any(part in event.key for part in parts)), "the rest")
        spent[kind] += event.self_cpu_time_total
    return ", ".join(f"{kind} {100 * time / spent.total():.0f} %" for kind, time in spent.most_common(3))
