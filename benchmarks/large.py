"""Images larger than memory: what a run on a map-style data set takes, from decoding to the last round.

Every image is made when it is asked for, as a data set of files decodes it. Two clients train on a share of their
images and are evaluated on all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import ROOT
from benchmarks.parts import MeasureError
from benchmarks.process_tree import MemoryPeak, Tree, subreaper
from isfl import layout
from isfl.lines import read_lines

SIDE, CLASSES, TEST = 96, 10, 1000
BYTES = 3 * SIDE * SIDE
MOST_MEMORY = 1e9
COUNT = "ISFL_BENCHMARK_IMAGES"

CONFIG = """
scheme = "isfl"
data = {{ name = "benchmarks.large:data_sets", public = 100 }}
split = {{ kind = "iid", clients = 2, samples_per_client = {each} }}
model = {{ name = "mlp", width = 0.25 }}
training = {{ rounds = {rounds}, local_epochs = 1, sampling_ratio = 0.1 }}
"""


class Images:
    """Images of noise with one bright row, at the height of the class."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        label = number % CLASSES
        image = np.random.default_rng(self.first + number).integers(0, 200, (3, SIDE, SIDE), np.uint8)
        image[:, 9 * label] = 255
        return image, label


def data_sets() -> tuple[Images, Images]:
    count = int(os.environ[COUNT])
    return Images(TEST, count), Images(0, TEST)


def measure(quick: bool) -> dict[str, Any]:
    rounds = 1 if quick else 2
    with subreaper(), tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        rows = [_row(Path(scratch), size, rounds) for size in ((0.5, 1.0) if quick else (1.0, 4.0))]
    return {
        "title": f"A run on images of {SIDE}x{SIDE} that are decoded into a file, {rounds} rounds, two processes",
        "rows": rows,
        "missed": missed({row["GB of images"]: row["peak memory in MB"] * 1e6 for row in rows}),
        "notes": ["peak memory: sum of proportional set sizes over all processes, without the system's page cache"],
    }


def missed(peaks: dict[float, float]) -> list[str]:
    """Return a line for each run that took more memory than is allowed, whatever its size."""
    return [
        f"{size:g} GB of images take {peak / 1e6:.0f} MB; at most {MOST_MEMORY / 1e6:.0f} are due"
        for size, peak in peaks.items()
        if peak > MOST_MEMORY
    ]


def _row(scratch: Path, gigabytes: float, rounds: int) -> dict[str, Any]:
    count = int(gigabytes * 1e9) // BYTES
    config, out = scratch / f"{gigabytes}.toml", scratch / f"run-{gigabytes}"
    config.write_text(CONFIG.format(each=(count - 100) // 2, rounds=rounds), encoding="utf-8")
    cache = {"ISFL_CACHE": str(scratch / "cache"), COUNT: str(count)}
    command = [sys.executable, "-m", "isfl.cli", "run", str(config), "--out", str(out), "--jobs", "2"]
    with MemoryPeak(Tree()) as memory:
        began = time.perf_counter()
        done = subprocess.run(command, env=os.environ | cache, cwd=ROOT, capture_output=True, text=True, timeout=3600)
        seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise MeasureError((done.stderr.strip().splitlines() or ["the run said nothing"])[-1])
    lines = read_lines(out / layout.METRICS)
    wall = [line["seconds"]["wall"] for line in lines]
    stored = sum(file.stat().st_size for file in (scratch / "cache/decoded").iterdir())
    for file in (scratch / "cache/decoded").iterdir():
        file.unlink()
    return {
        "GB of images": gigabytes,
        "images": count,
        "GB on disk": stored / 1e9,
        "seconds before the first round": seconds - sum(wall),
        "seconds a round": sum(wall) / len(wall),
        "accuracy in the last round": lines[-1]["accuracy_standard"],
        "peak memory in MB": memory.peak / 1e6,
    }
