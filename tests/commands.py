"""The command line in tests: in a process of its own, or in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isfl.cli import main

TINY = """
scheme = "isfl"
[data]
public = 40
[split]
kind = "mixed"
clients = 3
shard_size = 30
nr = 0.8
[model]
name = "mlp"
width = 0.25
[training]
rounds = 2
local_epochs = 1
batch_size = 32
"""
"""A configuration that runs in about a second."""


def isfl(*arguments: str, cwd: Path, columns: int = 100) -> subprocess.CompletedProcess[str]:
    """Run `isfl` in a new process with a terminal of `columns` characters."""
    return subprocess.run(
        [sys.executable, "-m", "isfl.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": str(columns)},
        timeout=280,
    )


def exit_code(*arguments: str) -> int | str | None:
    """Run `isfl` in this process and return its exit code."""
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    return ending.value.code
