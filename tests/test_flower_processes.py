"""Flower for real: its simulation, SuperLinks and SuperNodes on loopback, kills and intruders. All bounded in time."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from isfl.experiment.config import load_config
from isfl.flower import deployment, submission
from isfl.flower.app import app_files
from isfl.flower.deployment import Deployment, down, flwr, online, up
from isfl.flower.keys import LOOPBACK, make_node_key
from isfl.flower.processes import alive, environment, program

pytestmark = pytest.mark.timeout(420)

CONFIG = """
[data]
public = 40
[split]
kind = "mixed"
clients = 3
shard_size = 50
nr = 0.8
[model]
name = "small-cnn"
width = 0.25
[training]
rounds = 3
local_epochs = 1
batch_size = 32
evaluate_every = 3
[flower]
reply_seconds = 120
wait_seconds = 120
"""


def isfl(*arguments: str, seconds: float = 300) -> str:
    command = [sys.executable, "-m", "isfl.cli", *arguments]
    done = subprocess.run(command, env=environment(None), capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def digest(run: Path) -> str:
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def lines(run: Path) -> list[dict[str, Any]]:
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("config") / "small.toml"
    file.write_text(CONFIG)
    return file


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("federation")
    made = up(directory, 3, secure=False, tell=print)
    yield made
    assert sorted(down(directory)) == ["node-0", "node-1", "node-2", "superlink"]
    assert alive(directory) == [] and online(made) == 0


@pytest.fixture(scope="module", params=["isfl", "moon"])
def local(request: pytest.FixtureRequest, config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp(request.param) / "local"
    isfl("run", str(config), "--set", f"scheme={request.param}", "--out", str(out))
    return request.param, out


def test_three_engines_give_the_same_bits(
    local: tuple[str, Path], config: Path, federation: Deployment, tmp_path: Path
) -> None:
    scheme, at_home = local
    run = ["run", str(config), "--set", f"scheme={scheme}", "--engine", "flower", "--out"]
    isfl(*run, str(tmp_path / "simulation"))
    isfl(*run, str(tmp_path / "deployment"), "--connection", str(federation.directory))
    for out in (tmp_path / "simulation", tmp_path / "deployment"):
        assert digest(out) == digest(at_home)
        assert (out / "probabilities.jsonl").read_bytes() == (at_home / "probabilities.jsonl").read_bytes()
        assert lines(out)[-1]["accuracy_global"] == lines(at_home)[-1]["accuracy_global"]


def begun(config: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """A run of MOON on Flower, whose clients remember, after its first round."""
    command = ["run", str(config), "--set", "scheme=moon", "--engine", "flower", "--out", str(out), *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "isfl.cli", *command],
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: len(lines(out)) >= 1, 120)
    return process


@pytest.mark.parametrize("local", ["moon"], indirect=True)
def test_a_killed_simulation_goes_on_with_the_same_bits(config: Path, local: tuple[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = begun(config, out)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    isfl("resume", str(out))
    assert digest(out) == digest(local[1])


@pytest.mark.parametrize("local", ["moon"], indirect=True)
def test_a_killed_server_goes_on_with_the_same_bits(
    local: tuple[str, Path], config: Path, federation: Deployment, tmp_path: Path
) -> None:
    """SuperLink and server app die; `up` brings the SuperLink back, `resume` the run."""
    out = tmp_path / "run"
    process = begun(config, out, "--connection", str(federation.directory))
    (superlink,) = [process for process in alive(federation.directory) if process.name == "superlink"]
    os.killpg(superlink.pid, signal.SIGKILL)
    wait_for(lambda: superlink not in alive(federation.directory), 10)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2 and "isfl resume" in said and "Traceback" not in said
    assert len(lines(out)) < 3
    up(federation.directory, 3, secure=False, tell=print)
    isfl("resume", str(out))
    assert digest(out) == digest(local[1])


def test_nodes_that_fail_are_refused_and_a_killed_one_comes_back(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = (Path(__file__).parent / "hostile.py").read_text()
    honest = app_files()["pyproject.toml"]
    files = {"pyproject.toml": honest.replace("isfl.flower.app:client", "hostile:app"), "hostile.py": hostile}
    monkeypatch.setattr(submission, "app_files", lambda: files)
    directory, out = tmp_path / "federation", tmp_path / "run"
    changes = ["split.clients=4", "training.rounds=3", "flower.reply_seconds=40"]
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
    assert "did not answer within 40 s" in refused[0]["3"] and "0" not in refused[0]
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
            "with a key nobody registered": [*trust, "--auth-supernode-private-key", str(tmp_path / "key")],
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


def test_flwr_run_takes_overrides(federation: Deployment, tmp_path: Path) -> None:
    """The repository is a Flower app."""
    root, out = Path(__file__).parents[1], tmp_path / "run"
    overrides = (
        f'scheme="fedavg" training.rounds=1 split.clients=3 set="data.public=40; flower.evaluate_share=0" out="{out}"'
    )
    done = flwr(federation, "run", str(root), deployment.CONNECTION, "--run-config", overrides)
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: (out / "model.safetensors").exists(), 120)
    assert json.loads((out / "config.json").read_text())["scheme"]["name"] == "fedavg"
    assert len(lines(out)) == 1
