"""Code that the server's configuration names runs at a node only if the node's operator allows it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, cast

import pytest
from torch import Tensor, nn

from isfl.engines.flower.node import node_of
from isfl.engines.flower.supernode import Security, settings_of
from isfl.errors import UserError
from tests.grids import Federation, engine_of, own

NET, TRANSFORM = "tests.test_flower_code:Net", "tests.test_flower_code:darker"


class Net(nn.Sequential):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def darker(batch: Tensor) -> Tensor:
    return batch // 2


def started(grid: Federation, state: Path, **more: Any) -> None:
    """Give the nodes the configuration that their operators would write."""
    for number, node in grid.nodes.items():
        grid.nodes[number] = node_of({"partition-id": node.client, "data": node.data, "state-dir": str(state), **more})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": {"name": NET}}, f"model.name = '{NET}'"),
        ({"training": {"augment": [TRANSFORM]}}, f"training.augment = '{TRANSFORM}'"),
    ],
    ids=["model", "transform"],
)
def test_a_node_with_its_own_data_runs_only_code_that_its_operator_allows(
    change: dict[str, Any], named: str, tmp_path: Path
) -> None:
    """The refusal is part of the run's outcome, and names the key that would allow the code."""
    config, grid = own(tmp_path, **change)
    started(grid, tmp_path)
    with pytest.raises(UserError, match=f"{re.escape(named)}: its operator does not allow .* allow-code .* has none"):
        engine_of(config, grid).introduce()
    started(grid, tmp_path, **{"allow-code": f"{NET} {TRANSFORM}"})
    assert len(engine_of(config, grid).introduce()) == 3


def test_a_secured_node_runs_only_code_that_its_operator_allows_with_or_without_its_own_data() -> None:
    secured = Security(b"", cast(Any, None), {})
    for own_data in ("", ' data="scans.npz"'):
        settings = settings_of(f"partition-id=0{own_data}", secured)
        assert node_of(settings).allow_code == frozenset(), "the app reads these settings"
        settings = settings_of(f'partition-id=0{own_data} allow-code="{NET}"', secured)
        assert node_of(settings).allow_code == frozenset({NET})
    assert "allow-code" not in settings_of("partition-id=0", None)


def test_a_node_without_its_own_data_can_be_restricted_too(tmp_path: Path) -> None:
    assert node_of({"partition-id": 0}).allow_code is None
    assert node_of({"partition-id": 0, "allow-code": ""}).allow_code == frozenset()
    own_data = {"partition-id": 0, "data": "scans:load"}
    assert node_of({**own_data, "allow-code": "nets:Net"}).allow_code == frozenset({"scans:load", "nets:Net"})
    with pytest.raises(UserError, match="write module:name"):
        node_of({"partition-id": 0, "allow-code": "nets"})
