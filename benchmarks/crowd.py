"""A thousand clients, 2 % per round: memory does not depend on the number of clients.

The scheme with the most client state: private ISFL with MOON's objective, every client keeps its last model. Real
CIFAR-10, 50 images per client, ResNet8 at half width; compared with the same images split over 100 clients.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.parts import MeasureError
from benchmarks.process_tree import MemoryPeak, Tree, subreaper
from isfl import layout
from isfl.lines import read_lines

MOST_BYTES = 1.5e9
MOST_GROWTH = 1.1
"""Limit for the memory of ten times as many clients with the same data, as a factor."""
CONFIG = """
scheme.name = "isfl"
scheme.sampling = {{ where = "client", lipschitz_at = "client" }}
scheme.objective = {{ kind = "moon" }}
target = {{ kind = "uniform" }}
data = {{ name = "cifar10", public = 100 }}
split = {{ kind = "iid", clients = {clients}, samples_per_client = {samples} }}
model = {{ name = "resnet8", width = 0.5 }}
training = {{ rounds = {rounds}, local_epochs = 1, participation = {participation}, evaluate_every = {rounds} }}
"""


def measure(quick: bool) -> dict[str, Any]:
    rounds = 2 if quick else 10
    peaks, seconds = {}, {}
    with subreaper(), tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        for clients in (100, 1000):
            peaks[clients], seconds[clients] = _run(Path(scratch), clients, rounds)
    growth = peaks[1000] / peaks[100]
    missed = []
    if peaks[1000] > MOST_BYTES:
        missed.append(f"1,000 clients take {peaks[1000] / 1e6:.0f} MB; the limit is {MOST_BYTES / 1e6:.0f}")
    if growth > MOST_GROWTH:
        missed.append(f"1,000 clients take {growth:.2f} times the memory of 100; the limit is {MOST_GROWTH}")
    return {
        "title": f"20 of many clients a round, {rounds} rounds of private ISFL + MOON, 49,000 CIFAR-10 images in all",
        "rows": [
            {"clients": k, "images a client": 49_000 // k, "peak memory in MB": peaks[k] / 1e6, "seconds": seconds[k]}
            for k in peaks
        ],
        "missed": missed,
    }


def _run(scratch: Path, clients: int, rounds: int) -> tuple[int, float]:
    config, out = scratch / f"{clients}.toml", scratch / f"run-{clients}"
    samples, participation = 49_000 // clients, 20 / clients
    config.write_text(CONFIG.format(clients=clients, samples=samples, rounds=rounds, participation=participation))
    tree = Tree()
    with MemoryPeak(tree) as memory:
        done = subprocess.run(
            [sys.executable, "-m", "isfl.cli", "run", str(config), "--out", str(out)],
            capture_output=True,
            text=True,
            timeout=3600,
        )
    if done.returncode != 0:
        raise MeasureError(done.stderr.strip().splitlines()[-1])
    lines = read_lines(out / layout.METRICS)
    return memory.peak, sum(line["seconds"]["wall"] for line in lines)
