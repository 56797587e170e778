"""The data cache: damaged entries are never used, and processes may write at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from isfl.data import cache
from isfl.errors import UserError

pytestmark = pytest.mark.usefixtures("own_cache")


def test_a_damaged_cache_is_noticed_and_not_used(own_cache: Path) -> None:
    def stored() -> None:
        cache.store("x", {"a": np.arange(10), "b": np.ones((3, 3))})

    stored()
    recalled = cache.recall("x", ("a", "b"))
    assert recalled is not None
    np.testing.assert_array_equal(recalled["a"], np.arange(10))
    file, manifest = own_cache / "x/a.npy", own_cache / "x/manifest.json"
    for spoil in (
        lambda: file.write_bytes(file.read_bytes()[:-1] + b"!"),
        lambda: file.write_bytes(file.read_bytes()[:-8]),
        file.unlink,
        manifest.unlink,
        lambda: manifest.write_text("[]"),
        lambda: manifest.write_text('{"sha256": {}}'),
        lambda: manifest.write_text('{"sha256": null}'),
    ):
        stored()
        spoil()
        with pytest.warns(UserWarning, match="is damaged"):
            assert cache.recall("x", ("a", "b")) is None
    assert cache.recall("never stored", ("a",)) is None


def test_writing_to_a_recalled_array_does_not_change_the_file() -> None:
    cache.store("x", {"a": np.arange(10)})
    recalled = cache.recall("x", ("a",))
    assert recalled is not None
    torch.from_numpy(recalled["a"]).add_(1)
    again = cache.recall("x", ("a",))
    assert again is not None and again["a"].tolist() == list(range(10))


def test_several_processes_can_store_at_the_same_time(own_cache: Path) -> None:
    code = (
        "import numpy as np; from isfl.data import cache; [cache.store('x', {'a': np.arange(100)}) for _ in range(20)]"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert cache.recall("x", ("a",)) is not None
    assert sorted(p.name for p in own_cache.iterdir()) == [".lock", "x"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ISFL_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set ISFL_CACHE to another directory"):
        cache.store("x", {"a": np.arange(3)})
