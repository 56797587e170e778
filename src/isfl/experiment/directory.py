"""The run directory: the truth about a run, from which everything shown to a person is derived.

config.json           the configuration as resolved, every default filled in
run.json              versions and machine
split.json            class counts of every client and of the public set
metrics.jsonl         one JSON object a round, appended as it happens
probabilities.jsonl   the probabilities of every client, a round a line
model.safetensors     the global model after the last round
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from isfl.errors import UserError


class RunDirectory:
    """Paths and writing. Files appear whole (written under a temporary name and renamed) or grow by whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.probabilities = path / "probabilities.jsonl"
        self.model = path / "model.safetensors"

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], split: Mapping[str, Any]) -> RunDirectory:
        refuse_used(path)
        directory = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            directory._write_json("config.json", config)
            directory._write_json("split.json", split)
            directory._write_json("run.json", environment())
        except OSError as error:
            raise UserError(f"{path}: the run directory cannot be written ({error.strerror})") from None
        return directory

    def append(self, file: Path, line: Mapping[str, Any]) -> None:
        """One line, on disk before this returns."""
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, allow_nan=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def save_model(self, weights: Mapping[str, Tensor]) -> None:
        temporary = self.model.with_suffix(".tmp")
        save_file({name: value.contiguous() for name, value in weights.items()}, temporary)
        temporary.replace(self.model)

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        temporary = self.path / f"{name}.tmp"
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        temporary.replace(self.path / name)


def refuse_used(path: Path) -> None:
    """A directory with something in it is never written over."""
    try:
        used = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        raise UserError(f"{path}: cannot be used as a run directory ({error.strerror})") from None
    if used:
        raise UserError(f"{path}: exists and is not empty; give another --out or remove it")


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The complete lines of a file that may still be growing; none if it is not there yet."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def environment() -> dict[str, Any]:
    """What the numbers of a run may depend on besides its configuration."""
    return {
        "format": 1,
        "versions": {name: version(name) for name in ("isfl", "torch", "numpy")}
        | {"python": platform.python_version()},
        "machine": {"system": platform.system(), "processor": _processor(), "cpus": os.cpu_count()},
    }


def _processor() -> str:
    """The model name where the system tells it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
