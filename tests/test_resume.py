"""Resuming from intact and damaged files, and refusing to resume another run."""

from __future__ import annotations

import errno
import json
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
from isfl.experiment.run import resume, run
from tests.resumable import config, outcome, stop_after


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    path = tmp_path_factory.mktemp("whole") / "run"
    run(config(), path)
    return outcome(path)


def test_two_workers_and_one_write_the_same_run(
    tmp_path: Path, whole: tuple[bytes, bytes, list[dict[str, Any]]]
) -> None:
    """Started with two workers, stopped, and resumed with one: the result is bit-identical."""
    path = tmp_path / "run"
    stop_after(path, 3, workers=2)
    resume(path)
    assert outcome(path) == whole


def test_unsent_lipschitz_values_survive_an_interruption(tmp_path: Path) -> None:
    """The paper's private mode with half of the clients per round: the server keeps the values of absent clients."""
    private = config(scheme={"name": "isfl", "sampling": {"where": "client"}}, diagnostics={"bound": True})
    run(private, tmp_path / "whole")
    stop_after(tmp_path / "run", 3, settings=private)
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_damaged_client_memory_falls_back_to_the_previous_checkpoint(
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


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty manifest", "no tensors", "shorter", "longer"])
def test_a_damaged_checkpoint_falls_back_to_the_previous_one(
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


def test_without_checkpoints_a_run_starts_over(
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


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
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
    (path / "checksums.json").unlink()  # as in runs of earlier versions
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
def test_a_directory_that_is_not_a_run_is_refused(tmp_path: Path, spoil: Any, message: str) -> None:
    path = tmp_path / "run"
    stop_after(path, 2)
    spoil(path)
    with pytest.raises(UserError, match=message):
        resume(path)


def test_a_full_disk_is_a_clear_error_and_the_run_can_be_resumed(
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


def test_a_process_that_is_about_to_end_can_be_waited_for(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("part", "name"), [("versions", "torch"), ("machine", "convolutions")])
def test_a_changed_environment_is_warned_of(part: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    stop_after(path, 2)
    written = json.loads((path / "run.json").read_text())
    written[part][name] = "1.0"
    (path / "run.json").write_text(json.dumps(written))
    (path / "checksums.json").unlink()
    with pytest.warns(UserWarning, match=rf"started elsewhere \({name} 1.0 -> "):
        resume(path)


def test_a_run_that_measures_moments_resumes_with_the_same_bits(tmp_path: Path) -> None:
    """Moments belong to the global model: they are measured again and need no place in a checkpoint."""
    settings = config(scheme={"name": "bias-variance", "objective": {"calibrate": True}})
    run(settings, tmp_path / "whole")
    stop_after(tmp_path / "stopped", 2, settings=settings)
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")
