"""A run that is killed at any time resumes and ends with the same bits."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from isfl.experiment import directory
from isfl.experiment.run import resume, run
from tests.resumable import config, outcome
from tests.worlds import started


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    path = tmp_path_factory.mktemp("whole") / "run"
    run(config(), path)
    return outcome(path)


def in_a_process(path: Path, workers: int) -> subprocess.Popen[bytes]:
    """Start or resume the tiny run in a new process; return once its imports are done."""
    code = (
        "import sys; from isfl.experiment.cells import run_or_resume\n"
        "print('working', flush=True)\n"
        f"run_or_resume(sys.argv[1], sys.argv[2], workers={workers})"
    )
    command = [sys.executable, "-c", code, config().model_dump_json(), str(path)]
    with (path.parent / "errors.txt").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"working\n", (path.parent / "errors.txt").read_text()
    return process


def rounds_of(path: Path) -> int:
    file = path / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_killed_at_random_times_and_resumed_gives_the_same_bits(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]], workers: int
) -> None:
    """SIGKILL at random times before, in and between rounds, until the run finishes."""
    path, chance, kills = tmp_path / "run", random.Random(0), 0
    for rounds in (0, 1, 1, 2, 3):
        process = in_a_process(path, workers)
        before = time.monotonic()
        while rounds_of(path) < rounds and process.poll() is None and time.monotonic() - before < 60:
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.03))
        kills += process.poll() is None
        process.kill()
        process.wait()
    last = in_a_process(path, workers)
    assert last.wait(timeout=60) == 0, (tmp_path / "errors.txt").read_text()
    assert kills >= 3
    assert outcome(path) == whole


@pytest.mark.parametrize("moment", range(0, 80, 3))
def test_a_run_killed_during_any_write_and_resumed_gives_the_same_bits(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """At the n-th sync to disk the process dies, and half of the new bytes are on disk."""
    path, calls = tmp_path / "run", 0
    real, safe = os.fsync, dict[int, int]()

    def die(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        file = os.fstat(descriptor)
        if calls == moment + 1:
            with contextlib.suppress(OSError):  # a directory cannot be cut
                # Only half of the new bytes reached the disk.
                os.ftruncate(descriptor, (safe.get(file.st_ino, 0) + file.st_size) // 2)
            os._exit(9)
        real(descriptor)
        safe[file.st_ino] = file.st_size

    child = os.fork()
    if child == 0:
        os.fsync = die  # type: ignore[assignment]
        try:
            run(config(), path)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9)
    if path.exists():
        resume(path)
    else:
        run(config(), path)
    assert outcome(path) == whole


def test_ctrl_c_waits_for_the_write_in_progress() -> None:
    reached = []

    def write() -> None:
        with directory.uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            reached.append("the end of the write")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert reached


def wait_for(file: Path) -> None:
    for _ in range(1200):
        if file.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{file} did not come")


def test_ctrl_c_prints_the_resume_command_and_resume_finishes_the_run(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(
        '[data]\npublic = 40\n[split]\nclients = 3\nshard_size = 30\nnr = 0.8\n[model]\nname = "mlp"\n'
        "[training]\nrounds = 25\nlocal_epochs = 3\nbatch_size = 16\n"
    )

    with started("run", "tiny.toml", "--out", "out", cwd=tmp_path) as process:
        wait_for(tmp_path / "out/checkpoints/round-00003.json")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "error: interrupted; resume with: isfl resume out\n"
    with started("resume", "out", cwd=tmp_path) as process:
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "run directory: out" in output and "round   1/" not in output
    with started("resume", "out", cwd=tmp_path) as process:
        assert "finished: nothing to do" in process.communicate(timeout=60)[0]
    lines = (tmp_path / "out/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(1, 26))


def test_a_comparison_resumes_cell_by_cell(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(
        '[data]\npublic = 40\n[split]\nclients = 3\nshard_size = 30\nnr = 0.8\n[model]\nname = "mlp"\n'
        "[training]\nrounds = 12\nlocal_epochs = 3\nbatch_size = 16\n"
    )

    arguments = ("compare", "tiny.toml", "--schemes", "fedavg,isfl", "--seeds", "0", "--jobs", "1")
    with started(*arguments, "--out", "stopped", cwd=tmp_path) as process:
        wait_for(tmp_path / "stopped/isfl/seed-0/checkpoints/round-00003.json")
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    finished = (tmp_path / "stopped/fedavg/seed-0/model.safetensors").stat().st_mtime_ns
    time.sleep(1.5)  # its worker sees that it is gone
    with started("resume", "stopped", cwd=tmp_path) as process:
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "fedavg" in output and (tmp_path / "stopped/comparison.png").exists()
    assert (tmp_path / "stopped/fedavg/seed-0/model.safetensors").stat().st_mtime_ns == finished
    with started(*arguments, "--out", "straight", cwd=tmp_path) as process:
        process.communicate(timeout=120)
    for scheme in ("fedavg", "isfl"):
        assert outcome(tmp_path / "stopped" / scheme / "seed-0") == outcome(tmp_path / "straight" / scheme / "seed-0")
