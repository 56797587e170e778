"""Names of run directories and of the files in them. Every other module takes them from here."""

from __future__ import annotations

import time
from pathlib import Path

# ---------------------------------------------------------------- a run directory

CONFIG = "config.json"
"""The configuration as resolved, every default filled in."""
ENVIRONMENT = "run.json"
"""Format, versions, machine and engine."""
SPLIT = "split.json"
"""Class counts of every client and of the public set, and the target shares of every client."""
CHECKSUMS = "checksums.json"
"""SHA-256 of the three files above, which never change."""
METRICS = "metrics.jsonl"
"""One JSON object per round, appended as it happens."""
PROBABILITIES = "probabilities.jsonl"
"""Per round, the probabilities of every client and the Lipschitz values behind the next ones."""
CHECKPOINTS = "checkpoints"
"""The last two rounds, complete."""
CLIENTS = "clients"
"""Weights that clients of this machine keep between rounds."""
NODES = "nodes"
"""The same for clients of Flower's simulation."""
MODEL = "model.safetensors"
"""The global model after the last round: where it stands, the run is finished."""
REPEATS = "repeats.jsonl"
"""With differential privacy on a deployment: one line per resume, because the interrupted round is asked again."""
LOCK = ".lock"
"""Locked by the process that works on the run."""

DESCRIPTION = (CONFIG, ENVIRONMENT, SPLIT)
"""Written once, before the first round."""
GROWING = (METRICS, PROBABILITIES)
"""Grow by one line per round."""

# ---------------------------------------------------------------- a directory of many runs

PLAN = "cells.json"
"""Which runs the directory holds, and their configurations."""
SUMMARY = "summary.json"
"""The table of a comparison, for programs."""
SUMMARY_TEXT = "summary.md"
"""The table of a comparison, for people."""
COMPARISON = "comparison.png"
"""The picture of a comparison."""
REPORT = "report.html"
"""The report of all runs."""

# ---------------------------------------------------------------- where new directories go

RUNS = Path("runs")
"""Holds the directories that were not given a place."""


def fresh_directory(name: str) -> Path:
    """Return `runs/NAME-DATE`, which does not exist yet; a second one within the same second gets a number."""
    base = RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path
