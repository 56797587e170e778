"""Killed at any moment, a run goes on as if nothing had happened: the same bits at the end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isfl import files
from isfl.errors import UserError
from isfl.experiment import checkpoints, directory
from isfl.experiment.cells import run_or_resume
from isfl.experiment.config import Config, config_from
from isfl.experiment.run import resume, run
from tests.worlds import started

TINY: dict[str, Any] = {
    "scheme": {
        "name": "isfl",
        "sampling": {"where": "client"},
        "objective": {"kind": "moon", "calibrate": True},
        "aggregation": {"rule": "adam"},
    },
    "target": {"kind": "uniform"},
    "data": {"public": 40},
    "split": {"kind": "mixed", "clients": 4, "shard_size": 20, "nr": 0.8},
    "model": {"name": "small-cnn", "width": 0.25},
    "training": {"rounds": 5, "local_epochs": 1, "batch_size": 16, "participation": 0.5, "batchnorm": "local"},
}
"""Everything that is remembered between rounds: clients' models, statistics and probabilities, server buffers."""


def config(**changes: Any) -> Config:
    return config_from({**TINY, **changes}, "test")


def outcome(path: Path) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """All of a run that may not depend on interruptions: seconds are the one thing that may."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"]
    return (path / "model.safetensors").read_bytes(), (path / "probabilities.jsonl").read_bytes(), lines


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    path = tmp_path_factory.mktemp("whole") / "run"
    run(config(), path)
    return outcome(path)


def test_worker_processes_write_the_same_run(tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]]) -> None:
    """Started with two workers, stopped, gone on with alone: nobody can tell."""
    path = tmp_path / "run"
    stop_after(path, 3, workers=2)
    resume(path)
    assert outcome(path) == whole


def test_a_damaged_memory_of_a_client_falls_back_to_the_checkpoint_before(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]]
) -> None:
    path = tmp_path / "run"
    stop_after(path, 4)
    newest = max((path / "clients").iterdir(), key=lambda file: file.name.partition("round")[2])
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    with pytest.warns(UserWarning, match=r"round-00004 is damaged \(clients/client-.* is not what it was"):
        resume(path)
    assert outcome(path) == whole
    rounds = [file.stem.partition("round-")[2] for file in (path / "clients").iterdir()]
    assert len(rounds) <= 2 * 4, "at most what the last two checkpoints need"


def in_a_process(path: Path, workers: int) -> subprocess.Popen[bytes]:
    """Run, or go on with, the tiny run in a process of its own that has just begun to work, its imports behind it."""
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
def test_killed_at_many_moments_and_resumed_a_run_ends_in_the_same_bits(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]], workers: int
) -> None:
    """SIGKILL at random moments before, in and between rounds, until at last the run may get through."""
    path, chance, kills = tmp_path / "run", random.Random(0), 0
    for rounds in (0, 1, 2, 3):
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
    assert kills >= 2
    assert outcome(path) == whole


@pytest.mark.parametrize("moment", range(0, 80, 3))
def test_killed_inside_any_write_and_resumed_a_run_ends_in_the_same_bits(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """The n-th time the run syncs something to disk, the process is gone, half of what it wrote behind it."""
    path, calls = tmp_path / "run", 0
    real, safe = os.fsync, dict[int, int]()

    def die(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        file = os.fstat(descriptor)
        if calls == moment + 1:
            with contextlib.suppress(OSError):  # a directory cannot be cut
                # Of what is new, only half had reached the disk.
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


def stop_after(path: Path, rounds: int, workers: int = 1) -> None:
    """A run that stopped cleanly after some rounds."""

    def on_round(line: dict[str, Any]) -> None:
        if line["round"] == rounds:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config(), path, on_round, workers)


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty manifest", "no tensors", "shorter", "longer"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]], damage: str
) -> None:
    path = tmp_path / "run"
    stop_after(path, 3)
    newest = path / "checkpoints/round-00003.safetensors"
    if damage == "truncate":
        newest.write_bytes(newest.read_bytes()[:-100])
    elif damage == "flip":
        content = bytearray(newest.read_bytes())
        content[-50] ^= 1
        newest.write_bytes(content)
    elif damage == "empty manifest":
        newest.with_suffix(".json").write_text("")
    elif damage in ("shorter", "longer"):
        manifest = json.loads(newest.with_suffix(".json").read_text())
        manifest["files"]["metrics.jsonl"]["bytes"] += 200 if damage == "longer" else -200
        newest.with_suffix(".json").write_text(json.dumps(manifest))
    else:
        newest.unlink()
    with pytest.warns(UserWarning, match="round-00003 is damaged"):
        resume(path)
    assert outcome(path) == whole


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run(config(), path)
    assert sorted(p.name for p in (path / "checkpoints").iterdir()) == [
        "round-00004.json",
        "round-00004.safetensors",
        "round-00005.json",
        "round-00005.safetensors",
    ]


def test_with_both_checkpoints_gone_a_run_begins_again(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]]
) -> None:
    path = tmp_path / "run"
    stop_after(path, 2)
    for file in (path / "checkpoints").iterdir():
        file.unlink()
    resume(path)
    assert outcome(path) == whole


@pytest.mark.parametrize("name", ["metrics.jsonl", "probabilities.jsonl"])
def test_lines_that_were_lost_or_changed_are_written_again(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]], name: str
) -> None:
    path = tmp_path / "run"
    stop_after(path, 3)
    lines = (path / name).read_text().splitlines(keepends=True)
    (path / name).write_text("".join(lines[:2]))  # round 3 is gone: back to the checkpoint of round 2
    with pytest.warns(UserWarning, match=f"{name} is not what it was"):
        resume(path)
    assert outcome(path) == whole
    (path / "model.safetensors").unlink()
    (path / name).unlink()
    with pytest.warns(UserWarning, match="is damaged"):
        resume(path)  # nothing is left to go on from: it begins again
    assert outcome(path) == whole


def test_checkpoints_written_after_damaged_ones_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run"
    stop_after(path, 4)
    for file in (path / "checkpoints").glob("*.safetensors"):
        file.write_bytes(b"")

    def on_round(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            resume(path, on_round)
    assert [str(w.message).rpartition("; ")[2] for w in told] == ["going back to the one before", "beginning again"]
    assert sorted(p.name for p in (path / "checkpoints").glob("*.json")) == ["round-00001.json", "round-00002.json"]


def test_other_data_is_refused(tmp_path: Path) -> None:
    def write(seed: int) -> None:
        rng = np.random.default_rng(seed)
        arrays = {f"{part}_images": rng.normal(size=(200, 5)) for part in ("train", "test")}
        labels = {f"{part}_labels": np.arange(200) % 4 for part in ("train", "test")}
        np.savez(tmp_path / "data.npz", **arrays, **labels)  # type: ignore[arg-type]

    write(0)
    settings = config(
        data={"name": "npz", "path": str(tmp_path / "data.npz"), "public": 40},
        model={"name": "mlp"},
        split={"kind": "iid", "clients": 4, "samples_per_client": 20},
    )

    def on_round(line: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "run", on_round)
    write(1)
    with pytest.raises(UserError, match="the data is not what it was"):
        resume(tmp_path / "run")


def test_a_cell_that_holds_another_run_is_refused(tmp_path: Path) -> None:
    stop_after(tmp_path / "run", 1)
    with pytest.raises(UserError, match="another configuration than planned"):
        run_or_resume(config(seed=7).model_dump_json(), str(tmp_path / "run"))


def test_what_a_killed_process_left_behind_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".run-draft-abc/directory").mkdir(parents=True)
    stop_after(tmp_path / "run", 2)
    litter = tmp_path / "run/checkpoints/round-00001.safetensors.tmp"
    litter.write_bytes(b"half")
    resume(tmp_path / "run")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"] and not litter.exists()


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    stop_after(path, 2)
    changed = json.loads((path / "config.json").read_text())
    changed["training"]["rounds"] = 50
    (path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(UserError, match="not the configuration its checkpoints were written with"):
        resume(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: (p / "config.json").unlink(), "has no config.json"),
        (lambda p: (p / "run.json").unlink(), "has no run.json"),
        (lambda p: (p / "run.json").write_text("{}"), "another format"),
        (lambda p: (p / "config.json").write_text("{"), "cannot be read"),
    ],
)
def test_what_is_no_run_directory_is_refused(tmp_path: Path, spoil: Any, message: str) -> None:
    path = tmp_path / "run"
    stop_after(path, 2)
    spoil(path)
    with pytest.raises(UserError, match=message):
        resume(path)


def test_a_full_disk_is_a_clear_error_and_the_run_can_go_on(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, full = tmp_path / "run", files.write_whole, False

    def limited(file: Path, content: bytes) -> None:
        if full and file.suffix == ".safetensors":
            file.with_name(file.name + ".tmp").write_bytes(content[:1000])
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, content)

    def on_round(line: dict[str, Any]) -> None:
        nonlocal full
        full = line["round"] == 3

    monkeypatch.setattr(checkpoints, "write_whole", limited)
    with pytest.raises(UserError, match=r"No space left on device.*isfl resume"):
        run(config(), path, on_round)
    monkeypatch.setattr(checkpoints, "write_whole", real)
    assert (path / "checkpoints/round-00003.json").exists()
    resume(path)
    assert outcome(path) == whole


def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    stop_after(path, 2)
    lines = (path / "metrics.jsonl").read_bytes() + b"a line of the process at work"
    (path / "metrics.jsonl").write_bytes(lines)
    with directory.RunDirectory(path).locked(), pytest.raises(UserError, match="another process"):
        resume(path)
    assert (path / "metrics.jsonl").read_bytes() == lines


def test_a_process_that_is_about_to_end_may_be_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run"
    stop_after(path, 1)
    taken, ended = threading.Event(), threading.Event()

    def work() -> None:
        with directory.RunDirectory(path).locked():
            taken.set()
            time.sleep(0.3)
            ended.set()

    with ThreadPoolExecutor() as pool:
        pool.submit(work)
        assert taken.wait(10)
        with directory.RunDirectory(path).locked(patience=30):
            assert ended.is_set()


def test_another_version_of_torch_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "run"
    stop_after(path, 2)
    written = json.loads((path / "run.json").read_text())
    written["versions"]["torch"] = "1.0"
    (path / "run.json").write_text(json.dumps(written))
    with pytest.warns(UserWarning, match=r"started elsewhere \(torch 1.0 -> "):
        resume(path)


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


def test_ctrl_c_says_how_to_go_on_and_resume_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(
        '[data]\npublic = 40\n[split]\nclients = 3\nshard_size = 30\nnr = 0.8\n[model]\nname = "mlp"\n'
        "[training]\nrounds = 25\nlocal_epochs = 3\nbatch_size = 16\n"
    )

    with started("run", "tiny.toml", "--out", "out", cwd=tmp_path) as process:
        wait_for(tmp_path / "out/checkpoints/round-00003.json")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "error: interrupted; go on with: isfl resume out\n"
    with started("resume", "out", cwd=tmp_path) as process:
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "run directory: out" in output and "round   1/" not in output
    with started("resume", "out", cwd=tmp_path) as process:
        assert "finished: nothing to do" in process.communicate(timeout=60)[0]
    lines = (tmp_path / "out/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(1, 26))


def test_a_comparison_goes_on_cell_by_cell(tmp_path: Path) -> None:
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
