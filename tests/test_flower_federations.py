"""Real Flower processes: failing nodes. All waits have a time limit."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from isfl.engines.flower.apps import app_files
from isfl.engines.flower.deployment import down, up
from isfl.engines.flower.processes import alive
from isfl.experiment import submission
from isfl.problem.config import load_config
from tests.federations import lines, small_config, wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_config(tmp_path_factory.mktemp("config"))


def test_nodes_that_fail_are_refused_and_a_killed_one_comes_back(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = (Path(__file__).parent / "hostile.py").read_text()
    honest = app_files()["pyproject.toml"]
    files = {"pyproject.toml": honest.replace("isfl.flower:client", "hostile:app"), "hostile.py": hostile}
    monkeypatch.setattr(submission, "app_files", lambda: files)
    directory, out = tmp_path / "federation", tmp_path / "run"
    changes = ["split.clients=4", "training.rounds=3", "flower.reply_seconds=60"]
    settings = load_config(config, changes)
    up(directory, 4, secure=False, tell=print)
    try:

        def on_round(line: dict[str, Any]) -> None:
            if line["round"] == 1:  # the node that never answers is killed and started again
                (hanging,) = [process for process in alive(directory) if process.name == "node-3"]
                os.killpg(hanging.pid, signal.SIGKILL)
                wait_for(lambda: hanging not in alive(directory), 30)
                up(directory, 4, secure=False, tell=print)

        submission.submit(settings, out, str(directory), on_round, print)
    finally:
        down(directory)
    refused = [line["refused"] for line in lines(out)]
    assert "is not finite" in refused[0]["1"] and "reports a training loss of None" in refused[0]["2"]
    assert "did not answer within 60 s" in refused[0]["3"] and "0" not in refused[0]
    assert "has shape (3,)" in refused[1]["1"] and "claims 1000000000 samples" in refused[1]["2"]
    assert refused[2] == {}, "all are back"
