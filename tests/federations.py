"""Helpers for tests with real Flower processes: a small experiment, commands, and waiting with a time limit."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isfl.engines.flower.deployment import FLOWER_HOME, Deployment
from isfl.engines.flower.processes import environment, program

CONFIG = """
[data]
public = 40
[split]
kind = "mixed"
clients = 3
shard_size = 50
nr = 0.8
[model]
name = "small-cnn"
width = 0.25
[training]
rounds = 3
local_epochs = 1
batch_size = 32
evaluate_every = 3
[flower]
reply_seconds = 120
wait_seconds = 120
"""


def isfl(*arguments: str, seconds: float = 600) -> str:
    command = [sys.executable, "-m", "isfl.cli", *arguments]
    done = subprocess.run(command, env=environment(None), capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def flwr(deployment: Deployment, *arguments: str) -> subprocess.CompletedProcess[str]:
    command, home = [program("flwr"), *arguments], deployment.directory / FLOWER_HOME
    return subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=300)


def digest(run: Path) -> str:
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def lines(run: Path) -> list[dict[str, Any]]:
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


def small_config(directory: Path) -> Path:
    """Write the experiment to a file."""
    file = directory / "small.toml"
    file.write_text(CONFIG)
    return file
