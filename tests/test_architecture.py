"""The layers of the package: a layer may only import from those above it, and the picture of them shows that."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worlds import module_at

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "isfl"
PYTHON_FILES = sorted(
    path for part in ("src", "tests", "benchmarks", "scripts") for path in (ROOT / part).rglob("*.py")
)
ARCHITECTURE = module_at(ROOT / "scripts/draw_architecture.py")
ROOMS: tuple[str, ...] = ARCHITECTURE.ROOMS
imports_of: Callable[[str], set[str]] = ARCHITECTURE.imports_of


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_way_to_import_a_room_is_seen() -> None:
    for line in ("import isfl.report", "from isfl import report", "def f():\n    from isfl.report import page"):
        assert imports_of(line) == {"isfl.report"}
    assert imports_of("from isfl import theory as t, cli") == {"isfl.theory", "isfl.cli"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_room_imports_only_from_rooms_above_it(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    for module in imports_of(path.read_text(encoding="utf-8")):
        assert module != "isfl", "import a layer, not the whole package"
        if module.startswith("isfl."):
            other = module.split(".")[1]
            assert other in ROOMS, f"{module} is no layer; import names from the layer that defines them"
            assert ROOMS.index(other) <= ROOMS.index(room), f"{room} must not import {module}"
        if room == "theory":
            assert module.split(".")[0] in {*sys.stdlib_module_names, "numpy", "isfl"}, "theory is numpy only"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_global_random_state(path: Path) -> None:
    """Global generators are seeded only inside `randomness.py`, which restores their state."""
    text = path.read_text(encoding="utf-8")
    if room_of(path) != "randomness":
        assert not any(name in text for name in ("manual_seed", "np.random.seed", "import random"))


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = "import isfl.cli, sys; print([m for m in ('torch', 'numpy', 'matplotlib', 'pydantic') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


PRIVATE_NAMES = frozenset({"board", "crew", "hands", "post", "roster", "workplace"})
"""Names that only this project would understand; the field says shared buffer, worker pool, node registry."""


def private_names_in(source: str) -> set[str]:
    """Return the identifiers of a source that are private names, or have one among their parts."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME} - {"__post_init__"}
    return {name for name in names if PRIVATE_NAMES & set(name.lower().split("_"))}


def test_private_names_are_found_in_identifiers_alone() -> None:
    assert private_names_in("board = Crew(post_box)") == {"board", "Crew", "post_box"}
    assert private_names_in("keyboard = '--post'  # many hands\ndef __post_init__(): ...") == set()


@pytest.mark.parametrize("path", PYTHON_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_are_those_of_the_field(path: Path) -> None:
    assert not private_names_in(path.read_text(encoding="utf-8"))


def test_every_room_is_in_the_order_and_says_what_it_is() -> None:
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert rooms == set(ROOMS)
    for room in ROOMS:
        assert ARCHITECTURE.summary(room), f"{room} has no docstring"


def test_the_picture_of_the_rooms_is_drawn_from_the_imports() -> None:
    drawn = ARCHITECTURE.PICTURE.read_text(encoding="utf-8")
    assert drawn == ARCHITECTURE.picture(), "run: python scripts/draw_architecture.py"
    dots = sum(len(ARCHITECTURE.imported_rooms(room)) for room in ROOMS)
    assert drawn.count("<circle") == dots > len(ROOMS)


def test_the_paths_of_a_round_name_what_is_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"`(src/isfl/[\w/]+\.py)`: `(\w+)`", page)
    assert len(steps) >= 20
    for file, name in steps:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^\s*(def|class) {name}\b", source, re.MULTILINE), f"{file} has no {name}"
