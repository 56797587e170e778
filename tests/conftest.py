"""Tests run in as many processes as there are cores: one thread each. The longest files come first."""

from __future__ import annotations

import pytest
import torch

torch.set_num_threads(1)

LONGEST = ("test_flower_processes.py", "test_flower_federations.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nobody should wait for them at the end."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
