"""Campaigns see a fault of the package: each test breaks one safeguard, and the campaign reports it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from campaigns import damage, run
from campaigns.kinds import DAMAGE, DISKS, KILLS, OTHERS
from campaigns.reference import places, reference
from campaigns.verdicts import GOOD, Judged, Verdict

from isfl import cli, layout
from isfl.data import cache
from isfl.engines import LocalEngine
from isfl.engines.local import executor
from isfl.experiment import checkpoints, directory
from tests.pages import ROOT

KINDS = {**KILLS, **DISKS, **DAMAGE, **OTHERS}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the undisturbed run is; it is made before anything is broken."""
    place = tmp_path_factory.mktemp("campaign")
    reference(place), places(place), damage.cases_of_run(True, place)
    return place


def first_fault(name: str, scratch: Path, most: int) -> Judged:
    """Return the first try that the campaign would report as a fault."""
    for number in range(most):
        judged = run.attempt(name, KINDS[name], number, seed=0, scratch=scratch)
        if judged.verdict not in GOOD:
            return judged
    raise AssertionError(f"{name}: {most} tries, and all are as if nothing were broken")


def test_a_resumed_run_that_forgets_its_clients_is_silently_different(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalEngine, "restore", lambda *_: None)
    assert first_fault("kill-in-write", scratch, 40).verdict is Verdict.DIFFERENT


def test_a_run_that_cannot_be_resumed_is_lost(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(LocalEngine, "restore", fails)
    judged = first_fault("kill-in-write", scratch, 40)
    assert judged.verdict is Verdict.LOST and "RuntimeError: a bug" in judged.what


def test_a_checkpoint_that_is_not_verified_is_silently_different(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unverified(manifest: Path) -> tuple[dict[str, Any], bytes]:
        return json.loads(manifest.read_text()), manifest.with_suffix(".safetensors").read_bytes()

    monkeypatch.setattr(checkpoints, "_content", unverified)
    monkeypatch.setattr(checkpoints, "is_prefix", lambda *_: True)
    monkeypatch.setattr(checkpoints, "_check_client_file", lambda *_, **__: None)
    assert first_fault("damage", scratch, 40).verdict is Verdict.DIFFERENT


def test_a_final_model_that_is_not_verified_is_silently_different(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "_holds", lambda *_: True)
    number = damage.cases(reference(scratch).whole).index((Path(layout.MODEL), "flip"))
    judged = run.attempt("damage-finished", KINDS["damage-finished"], number, 0, scratch)
    assert judged.verdict is Verdict.DIFFERENT


def test_a_cached_data_set_that_is_not_verified_is_silently_different(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "sha256", lambda file: "the same for every content")
    judged = first_fault("damage-cache", scratch, 40)
    assert judged.verdict is Verdict.DIFFERENT and "flipped" in judged.what


def test_a_full_disk_that_is_a_traceback_is_an_unclear_error(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "told_when_full", nullcontext)
    monkeypatch.setattr(cli, "as_user_error", lambda error: None)
    judged = first_fault("no-space", scratch, 40)
    assert judged.verdict is Verdict.UNCLEAR and "No space left on device" in judged.what


def test_too_little_memory_that_is_a_traceback_is_an_unclear_error(tmp_path: Path) -> None:
    """In a new process: in one that has freed much memory, small workers may never ask for more."""
    code = (
        "import sys; from pathlib import Path; from isfl import cli; from isfl.engines.local import worker_pool\n"
        "for module in (worker_pool, cli): module.as_user_error = lambda error: None\n"
        "from tests.test_campaign_detects import first_fault\n"
        "judged = first_fault('memory', Path(sys.argv[1]), 20); print(judged.verdict.name, judged.what)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "scratch")]
    (tmp_path / "scratch").mkdir()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.stdout.startswith(Verdict.UNCLEAR.name) and "exit code 1" in done.stdout, done.stderr


def test_a_killed_worker_that_ends_the_run_is_a_lost_run(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "RETRIES", 0)
    assert first_fault("kill-one", scratch, 20).verdict is Verdict.LOST


def test_two_processes_that_both_work_on_one_run_are_found(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_taken", lambda stream: True)
    assert first_fault("together", scratch, 20).verdict in (Verdict.UNCLEAR, Verdict.LOST, Verdict.DIFFERENT)
