"""Tests run in as many processes as there are cores: one thread each. The longest file comes first."""

from __future__ import annotations

import pytest
import torch

torch.set_num_threads(1)

LONGEST = "test_flower_processes.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nobody should wait for it at the end."""
    items.sort(key=lambda item: item.path.name != LONGEST)
