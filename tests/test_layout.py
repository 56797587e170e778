"""The names of a run directory's files are defined in one module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from isfl import layout

ROOT = Path(__file__).parent.parent
SOURCES = [
    path
    for folder in ("src", "scripts", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != Path(layout.__file__)
]


def constants() -> set[str]:
    return {value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)}


def written_names(source: str) -> Iterator[str]:
    """Yield the names of a run directory's files that a source spells out, other than in docstrings.

    A word such as `clients` is also a key of other things: it counts where it is a part of a path. Prose puts names
    between backticks.
    """
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            yield from constants() & {node.right.value}
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            text = re.sub("`[^`]*`", "", node.value)
            yield from (name for name in constants() if "." in name.strip(".") and name in text)


def test_the_search_finds_names_and_passes_over_docstrings_and_keys() -> None:
    assert list(written_names('a = path / "clients"')) == ["clients"]
    assert list(written_names('a = f"{path}/metrics.jsonl"')) == ["metrics.jsonl"]
    assert not list(written_names('"""Write `metrics.jsonl`."""\nplan["clients"] = "nodes"'))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_names_of_a_run_directory_are_defined_in_layout_only(path: Path) -> None:
    allowed = {layout.LOCK} if path.name == "cache.py" else set()  # the cache of datasets has a lock of its own
    assert set(written_names(path.read_text(encoding="utf-8"))) <= allowed
