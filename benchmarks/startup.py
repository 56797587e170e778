"""Start-up time: of `isfl --help`, and until the first round of a run is on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from isfl import layout

HELP_SECONDS, FIRST_SECONDS = 0.3, 5.0
CONFIG = """
scheme = "fedavg"
data = { public = 20 }
split = { kind = "iid", clients = 2, samples_per_client = 16 }
training = { rounds = 2, local_epochs = 1, batch_size = 16, evaluate_every = 2 }
"""


def measure(quick: bool) -> dict[str, Any]:
    turns = 3 if quick else 7
    helps, firsts = [], []
    with tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        config = Path(scratch) / "tiny.toml"
        config.write_text(CONFIG)
        for turn in range(turns + 1):
            pair = _help(), _first_round(config, Path(scratch) / f"run-{turn}")
            if turn > 0:  # the first reads everything from disk
                helps.append(pair[0])
                firsts.append(pair[1])
    found = {"isfl --help": (median(helps), HELP_SECONDS), "first round on disk": (median(firsts), FIRST_SECONDS)}
    return {
        "title": "Start-up",
        "rows": [{"what": name, "seconds": value, "bar": bar} for name, (value, bar) in found.items()],
        "missed": [
            f"{name} takes {value:.2f} s; the limit is {bar}" for name, (value, bar) in found.items() if value > bar
        ],
        "notes": ["the first round (two clients, one batch each) stands in for the first batch: it comes a bit later"],
        "samples": {"help": helps, "first": firsts},
    }


def _isfl(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "isfl.cli", *arguments]


def _help() -> float:
    began = time.perf_counter()
    subprocess.run(_isfl("--help"), check=True, stdout=subprocess.DEVNULL, timeout=60, env=os.environ)
    return time.perf_counter() - began


def _first_round(config: Path, out: Path) -> float:
    began = time.perf_counter()
    with subprocess.Popen(_isfl("run", str(config), "--out", str(out)), stdout=subprocess.DEVNULL) as process:
        metrics = out / layout.METRICS
        while time.perf_counter() - began < 60 and process.poll() is None:
            if metrics.exists() and metrics.stat().st_size > 0:
                break
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        process.wait(timeout=60)
    assert process.returncode == 0
    return seconds
