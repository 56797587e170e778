"""Ten to ten thousand clients, at most 100 per round: time per client and memory do not depend on how many there are.

The scheme with the most client state: private ISFL with MOON's objective, every client keeps its last model. Real
CIFAR-10, four images per client, ResNet8 at half width.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.parts import MeasureError
from benchmarks.process_tree import MemoryPeak, Tree, subreaper
from isfl import layout
from isfl.lines import read_lines

SIZES, CHOSEN = (10, 100, 1000, 10_000), 100
"""Numbers of clients, and how many of them train in a round: one per cent of the largest."""
REFERENCE = 100
MOST_BYTES = 1.5e9
MOST_GROWTH = 1.1
"""Limit for time and memory with more clients than the reference has, as a factor."""
CONFIG = """
scheme.name = "isfl"
scheme.sampling = {{ where = "client", lipschitz_at = "client" }}
scheme.objective = {{ kind = "moon" }}
target = {{ kind = "uniform" }}
data = {{ name = "cifar10", public = 100 }}
split = {{ kind = "iid", clients = {clients}, samples_per_client = 4 }}
model = {{ name = "resnet8", width = 0.5 }}
training = {{ rounds = {rounds}, local_epochs = 1, participation = {participation}, evaluate_every = {rounds} }}
"""


@dataclass(frozen=True)
class Cost:
    bytes: int
    """At the peak, over all processes."""
    seconds: float
    """Per round and chosen client, without the last round, which evaluates."""


def measure(quick: bool) -> dict[str, Any]:
    rounds, costs = 3 if quick else 6, {}
    with subreaper(), tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        for clients in SIZES[: 3 if quick else 4]:
            costs[clients] = _run(Path(scratch), clients, rounds)
    return {
        "title": f"At most {CHOSEN} of many clients a round, {rounds} rounds of private ISFL + MOON, four images each",
        "rows": [
            {
                "clients": f"{clients:,}",
                "a round": min(clients, CHOSEN),
                "peak memory in MB": cost.bytes / 1e6,
                "milliseconds a chosen client": 1e3 * cost.seconds,
            }
            for clients, cost in costs.items()
        ],
        "missed": missed(costs),
    }


def missed(costs: Mapping[int, Cost]) -> list[str]:
    found, reference = [], costs[REFERENCE]
    for clients, cost in costs.items():
        if cost.bytes > MOST_BYTES:
            found.append(f"{clients} clients take {cost.bytes / 1e6:.0f} MB; the limit is {MOST_BYTES / 1e6:.0f}")
        for what, ratio in (("memory", cost.bytes / reference.bytes), ("time", cost.seconds / reference.seconds)):
            if clients > REFERENCE and ratio > MOST_GROWTH:
                found.append(
                    f"{clients} clients take {ratio:.2f} times the {what} of {REFERENCE}; the limit is {MOST_GROWTH}"
                )
    return found


def _run(scratch: Path, clients: int, rounds: int) -> Cost:
    config, out = scratch / f"{clients}.toml", scratch / f"run-{clients}"
    chosen = min(clients, CHOSEN)
    config.write_text(CONFIG.format(clients=clients, rounds=rounds, participation=chosen / clients))
    with MemoryPeak(Tree()) as memory:
        done = subprocess.run(
            [sys.executable, "-m", "isfl.cli", "run", str(config), "--out", str(out)],
            capture_output=True,
            text=True,
            timeout=3600,
        )
    if done.returncode != 0:
        raise MeasureError(done.stderr.strip().splitlines()[-1])
    lines = read_lines(out / layout.METRICS)
    return Cost(memory.peak, median(line["seconds"]["wall"] for line in lines[:-1]) / chosen)
