"""A small configuration on the embedded images, and the error line of `isfl run` for wrong overrides."""

from __future__ import annotations

from pathlib import Path

import pytest

from isfl.cli import main

SMALL = """
scheme = "fedavg"
[data]
public = 40
[split]
kind = "iid"
clients = 2
samples_per_client = 30
[model]
name = "mlp"
width = 0.25
[training]
rounds = 2
local_epochs = 1
batch_size = 32
"""


def refusal(directory: Path, capsys: pytest.CaptureFixture[str], *changes: str, jobs: int = 1) -> str:
    """Return the line that `isfl run` prints for these overrides before it exits with code 2.

    Only a traceback of the user's own code may come before it.
    """
    file = directory / "small.toml"
    file.write_text(SMALL, encoding="utf-8")
    overrides = [word for change in changes for word in ("--set", change)]
    with pytest.raises(SystemExit) as ending:
        main(["run", str(file), *overrides, "--jobs", str(jobs), "--out", str(directory / "out")])
    *above, line = capsys.readouterr().err.splitlines()
    assert ending.value.code == 2, line
    assert line.startswith("error: ") and (not above or above[0].startswith("Traceback")), (above, line)
    return line
