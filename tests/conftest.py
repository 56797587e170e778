"""Fixtures and order of all tests. Tests run in one process per core, with one thread each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.browser import started
from tests.commands import TINY
from tests.directories import scheme_runs_in

torch.set_num_threads(1)

LONGEST = ("test_flower_processes.py", "test_flower_federations.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first, so that no process runs them alone at the end."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A file with the configuration `TINY`."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data cache for one test."""
    monkeypatch.setenv("ISFL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def scheme_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the runs of `scheme_runs_in`, to be read only."""
    out = tmp_path_factory.mktemp("runs")
    scheme_runs_in(out)
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running browser; tests that need one are skipped where there is none."""
    with started() as running:
        yield running
