"""Real Flower processes: failing nodes and refused strangers. All waits have a time limit."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from isfl.engines.flower import deployment
from isfl.engines.flower.deployment import down, flwr, online, up
from isfl.engines.flower.keys import LOOPBACK, make_node_key
from isfl.engines.flower.processes import alive, environment, program
from isfl.experiment import submission
from isfl.experiment.flower_app import app_files
from isfl.problem.config import load_config
from tests.federations import isfl, lines, small_config, wait_for

pytestmark = pytest.mark.timeout(420)


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
                wait_for(lambda: hanging not in alive(directory), 10)
                up(directory, 4, secure=False, tell=print)

        submission.submit(settings, out, str(directory), on_round, print)
    finally:
        down(directory)
    refused = [line["refused"] for line in lines(out)]
    assert "is not finite" in refused[0]["1"] and "lacks 'train_loss'" in refused[0]["2"]
    assert "did not answer within 60 s" in refused[0]["3"] and "0" not in refused[0]
    assert "has shape (3,)" in refused[1]["1"] and "claims 1000000000 samples" in refused[1]["2"]
    assert refused[2] == {}, "all are back"


def test_a_secured_federation_refuses_strangers(config: Path, tmp_path: Path) -> None:
    directory = tmp_path / "federation"
    made = up(directory, 2, secure=True, tell=print)
    try:
        for secret in ("ca.key", "server.key", "node-0/key", "node-1/key"):
            assert stat.S_IMODE((directory / secret).stat().st_mode) == 0o600
        assert online(made) == 2
        make_node_key(tmp_path)
        link = ["--superlink", f"{LOOPBACK}:{made.port}", "--host", LOOPBACK]
        trust = ["--root-certificates", str(directory / "ca.crt")]
        strangers = {
            "without TLS": ["--insecure"],
            "without a key": trust,
            "with an unregistered key": [*trust, "--auth-supernode-private-key", str(tmp_path / "key")],
        }
        commands = [
            [program("flower-supernode"), *link, "--port", str(made.port + 50 + i), *options]
            for i, options in enumerate(strangers.values())
        ]
        with ThreadPoolExecutor() as pool:
            said = dict(
                zip(strangers, pool.map(lambda c: _what_it_says(c, directory, seconds=12), commands), strict=True)
            )
        nodes = json.loads(flwr(made, "supernode", "list", deployment.CONNECTION, "--format", "json").stdout)["nodes"]
        for who, words in said.items():
            assert "Starting Flower SuperNode" in words and "SuperNode ID" not in words, f"{who}: {words}"
        assert "SuperNode ID" in (directory / "node-0.log").read_text(), "what a node says that is let in"
        assert len(nodes) == 2 and all(node["status"] == "online" for node in nodes)
        out = tmp_path / "run"
        changes = ["--set", "split.clients=2", "--set", "training.rounds=1", "--set", "flower.evaluate_share=0"]
        isfl("run", str(config), *changes, "--engine", "flower", "--connection", str(directory), "--out", str(out))
        assert lines(out)[0]["refused"] == {}
    finally:
        down(directory)


def _what_it_says(command: list[str], directory: Path, seconds: float) -> str:
    process = subprocess.Popen(
        command,
        env=environment(directory / "flower"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate(timeout=10)[0]
