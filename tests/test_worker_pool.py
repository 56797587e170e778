"""The pool of worker processes and the buffer they share: every job once, errors here, nothing left behind."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import pytest
import torch

from isfl.engines.local.shared_buffer import SharedModels
from isfl.engines.local.worker_pool import Handler, WorkerPool
from isfl.errors import UserCodeError, UserError
from isfl.experiment.cells import _cell_worker
from isfl.federation.values import Weights
from isfl.problem.given import NOTHING


def _twice(number: int, marker: str) -> Handler:
    def handle(value: int) -> int:
        if value == 13 and not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if value == 666:
            os.kill(os.getpid(), signal.SIGKILL)
        if value == -1:
            raise UserError("minus one is not allowed")
        if value == -2:
            raise KeyError("not found")
        return 2 * value

    return handle


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    pool = WorkerPool(2, _twice, (str(tmp_path / "marker"),), retries=1)
    yield pool
    pool.close()


def test_every_job_is_done_once_even_if_workers_die(pool: WorkerPool) -> None:
    assert sorted(result for _, result, _ in pool.run([(i,) for i in range(20)])) == [2 * i for i in range(20)]


def test_a_job_that_always_kills_its_worker_is_given_up(pool: WorkerPool) -> None:
    with pytest.raises(UserError, match=r"ended unexpectedly \(exit code -9\), 2 times on the same job"):
        list(pool.run([(1,), (666,)]))
    assert pool.workers == []
    with pytest.raises(RuntimeError, match="has been closed"):
        list(pool.run([(1,)]))


@pytest.mark.parametrize(("value", "kind", "text"), [(-1, UserError, "not allowed"), (-2, UserCodeError, "not found")])
def test_an_error_in_a_job_is_raised_here(pool: WorkerPool, value: int, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        list(pool.run([(1,), (value,)]))


def test_a_bug_of_ours_in_a_worker_keeps_its_traceback() -> None:
    pool = WorkerPool(1, _cell_worker, (NOTHING, get_context("spawn").Event()))
    with pytest.raises(RuntimeError, match=r"a worker process failed:\nTraceback(.|\n)*in _run_until"):
        list(pool.run([("not a configuration", "out")]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_warning_in_a_worker_is_shown_and_does_not_fail_the_job(
    method: Literal["fork", "spawn"], capfd: pytest.CaptureFixture[str]
) -> None:
    """The tests turn warnings into errors; a forked worker must not inherit that from its caller."""
    pool = WorkerPool(1, _warning, method=method)
    try:
        assert [result for _, result, _ in pool.run([("careful",)])] == ["careful"]
    finally:
        pool.close()
    assert "warning: careful" in capfd.readouterr().err


def _warning(number: int) -> Handler:
    def warn(text: str) -> str:
        warnings.warn(text, stacklevel=1)
        return text

    return warn


def test_workers_end_when_their_parent_is_gone(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal, sys\n"
        "from isfl.engines.local.worker_pool import WorkerPool\n"
        "from tests.test_worker_pool import _twice\n"
        "if __name__ == '__main__':\n"
        "    pool = WorkerPool(2, _twice, ('nowhere',))\n"
        "    list(pool.run([(1,), (2,)]))\n"
        "    print(*[worker.process.pid for worker in pool.workers], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 20
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# ---------------------------------------------------------------- the shared buffer


def test_shared_models_keep_every_bit_and_the_layout() -> None:
    weights: Weights = {
        "conv": torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last),
        "half": torch.randn(5).half(),
        "count": torch.tensor(7),
        "nothing": torch.zeros(0, 3),
        "transposed": torch.randn(3, 4).t(),
    }
    shared = SharedModels(weights, rows=3)
    shared.write(1, weights)
    for name, value in shared.read(1).items():
        assert torch.equal(value, weights[name]) and value.dtype == weights[name].dtype
    assert shared.read(1)["conv"].stride() == weights["conv"].stride()
    assert not any(bool(value.any()) for value in shared.read(0).values())
    kept = shared.copy(1, frozenset({"half", "count"}))
    shared.write(1, {"half": torch.zeros(5)})
    assert kept.keys() == {"half", "count"} and torch.equal(kept["half"], weights["half"])
    assert torch.equal(shared.read(1)["conv"], weights["conv"])
