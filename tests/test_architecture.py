"""The house: rooms from pure to practical; a room may only look towards the top of the list."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "isfl"
ROOMS = [
    "errors",
    "files",
    "crew",
    "schema",
    "randomness",
    "theory",
    "kernels",
    "smoothness",
    "sampling",
    "data",
    "models",
    "federation",
    "engines",
    "plotting",
    "experiment",
    "flower",
    "diagnose",
    "report",
    "trackers",
    "cli",
]


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_rooms_look_only_upwards(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    for module in imports_of(path):
        if module.startswith("isfl."):
            other = module.split(".")[1]
            assert ROOMS.index(other) <= ROOMS.index(room), f"{room} must not know {module}"
        if room == "theory":
            assert module.split(".")[0] in {*sys.stdlib_module_names, "numpy", "isfl"}, "theory is numpy only"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_global_random_state(path: Path) -> None:
    """`torch.manual_seed` only inside `randomness.py`, which restores the state; numpy's and Python's never."""
    text = path.read_text(encoding="utf-8")
    assert "np.random.seed" not in text and "import random" not in text
    if room_of(path) != "randomness":
        assert "manual_seed" not in text


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = "import isfl.cli, sys; print([m for m in ('torch', 'numpy', 'matplotlib', 'pydantic') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
