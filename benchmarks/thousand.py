"""A thousand clients as Flower nodes, 2 % per round: memory of all processes of Flower's simulation.

Real CIFAR-10, 45 images per client, ResNet8 at half width, ISFL with probabilities from the server.
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
from isfl.engines.flower.processes import environment
from isfl.lines import read_lines

CONFIG = """
scheme = "isfl"
data = {{ name = "cifar10", public = 100 }}
split = {{ kind = "iid", clients = {clients}, samples_per_client = 45 }}
model = {{ name = "resnet8", width = 0.5 }}
[training]
rounds = {rounds}
local_epochs = 1
participation = {participation}
evaluate_every = {rounds}
evaluate_clients = {participation}
"""


def measure(quick: bool) -> dict[str, Any]:
    rounds, rows = 2 if quick else 5, []
    with subreaper(), tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        for clients in (100, 1000):
            rows.append(_row(Path(scratch), clients, rounds))
    return {
        "title": f"20 clients per round in Flower's simulation, {rounds} rounds, two at a time",
        "rows": rows,
        "missed": [],
    }


def _row(scratch: Path, clients: int, rounds: int) -> dict[str, Any]:
    config, out = scratch / f"{clients}.toml", scratch / f"run-{clients}"
    config.write_text(CONFIG.format(clients=clients, rounds=rounds, participation=20 / clients))
    with MemoryPeak(Tree()) as memory:
        done = subprocess.run(
            [sys.executable, "-m", "isfl.cli", "run", str(config), "--engine", "flower", "--out", str(out)],
            env=environment(None),
            capture_output=True,
            text=True,
            timeout=1800,
        )
    if done.returncode != 0:
        raise MeasureError((done.stderr.strip().splitlines() or ["the run said nothing"])[-1])
    lines = read_lines(out / layout.METRICS)
    checkpoint = max((out / layout.CHECKPOINTS).glob("*.safetensors"))
    return {
        "clients": clients,
        "seconds per round": sum(line["seconds"]["wall"] for line in lines[:-1]) / max(1, len(lines) - 1),
        "MB down per round": lines[0]["bytes_down"] / 1e6,
        "MB up per round": lines[0]["bytes_up"] / 1e6,
        "refused": sum(len(line["refused"]) for line in lines),
        "checkpoint in MB": checkpoint.stat().st_size / 1e6,
        "peak memory in MB": memory.peak / 1e6,
    }
