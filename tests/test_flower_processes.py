"""Real Flower processes: simulation and deployment on loopback, the same bits, kills. All waits have a time limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isfl.engines.flower import deployment
from isfl.engines.flower.deployment import Deployment, down, online, up
from isfl.engines.flower.processes import alive, environment
from tests.federations import digest, flwr, isfl, lines, small_config, wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_config(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("federation")
    made = up(directory, 3, secure=False, tell=print)
    yield made
    assert sorted(down(directory)) == ["node-0", "node-1", "node-2", "superlink"]
    assert alive(directory) == [] and online(made) == 0


@pytest.fixture(scope="module")
def local(request: pytest.FixtureRequest, config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp(request.param) / "local"
    isfl("run", str(config), "--set", f"scheme={request.param}", "--out", str(out))
    return request.param, out


@pytest.mark.parametrize("local", ["isfl"], indirect=True)
def test_three_engines_give_the_same_bits(
    local: tuple[str, Path], config: Path, federation: Deployment, tmp_path: Path
) -> None:
    """The tests of kills cover MOON, whose clients remember a model."""
    scheme, local_run = local
    run = ["run", str(config), "--set", f"scheme={scheme}", "--engine", "flower", "--out"]
    isfl(*run, str(tmp_path / "simulation"))
    isfl(*run, str(tmp_path / "deployment"), "--connection", str(federation.directory))
    for out in (tmp_path / "simulation", tmp_path / "deployment"):
        assert digest(out) == digest(local_run)
        assert (out / "probabilities.jsonl").read_bytes() == (local_run / "probabilities.jsonl").read_bytes()
        assert lines(out)[-1]["accuracy_global"] == lines(local_run)[-1]["accuracy_global"]


def test_masked_updates_of_real_nodes_give_the_bits_of_the_local_engine(
    config: Path, federation: Deployment, tmp_path: Path
) -> None:
    """The nodes draw their secrets from the system's entropy, and keep them on disk from phase to phase."""
    scheme = 'scheme={name = "isfl", sampling = {where = "client", lipschitz_at = "client"}}'
    changes = [
        word
        for change in (scheme, "target.kind=uniform", "secure={}", "training.rounds=2")
        for word in ("--set", change)
    ]
    isfl("run", str(config), *changes, "--out", str(tmp_path / "local"))
    deployed = ["--engine", "flower", "--connection", str(federation.directory), "--out", str(tmp_path / "deployment")]
    isfl("run", str(config), *changes, *deployed)
    assert digest(tmp_path / "deployment") == digest(tmp_path / "local")
    for ours, theirs in zip(lines(tmp_path / "deployment"), lines(tmp_path / "local"), strict=True):
        assert ours["refused"] == theirs["refused"] == {} and ours["train_loss"] == theirs["train_loss"]
        assert ours["bytes_up"] == theirs["bytes_up"] and ours["client_update_norm"] == [None] * 3


def begun(config: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """Start a run of MOON on Flower, whose clients keep state; return after its first round."""
    command = ["run", str(config), "--set", "scheme=moon", "--engine", "flower", "--out", str(out), *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "isfl.cli", *command],
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: len(lines(out)) >= 1, 300)
    return process


@pytest.mark.parametrize("local", ["moon"], indirect=True)
def test_a_killed_simulation_resumes_with_the_same_bits(config: Path, local: tuple[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = begun(config, out)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=90)
    isfl("resume", str(out))
    assert digest(out) == digest(local[1])


@pytest.mark.parametrize("local", ["moon"], indirect=True)
def test_a_killed_server_resumes_with_the_same_bits(
    local: tuple[str, Path], config: Path, federation: Deployment, tmp_path: Path
) -> None:
    """SuperLink and server app are killed; `up` restarts the SuperLink with new SuperNodes, `resume` the run."""
    out = tmp_path / "run"
    process = begun(config, out, "--connection", str(federation.directory))
    before = alive(federation.directory)
    (superlink,) = [process for process in before if process.name == "superlink"]
    os.killpg(superlink.pid, signal.SIGKILL)
    wait_for(lambda: superlink not in alive(federation.directory), 30)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 2 and "isfl resume" in said and "Traceback" not in said
    assert len(lines(out)) < 3
    up(federation.directory, 3, secure=False, tell=print)
    assert len(alive(federation.directory)) == 4 and not {*before} & {*alive(federation.directory)}
    isfl("resume", str(out))
    assert digest(out) == digest(local[1])


def test_flwr_run_takes_overrides(federation: Deployment, tmp_path: Path) -> None:
    """The repository is a Flower app."""
    root, out = Path(__file__).parents[1], tmp_path / "run"
    overrides = (
        f'scheme="fedavg" training.rounds=1 split.clients=3 set="data.public=40; flower.evaluate_share=0" out="{out}"'
    )
    done = flwr(federation, "run", str(root), deployment.CONNECTION, "--run-config", overrides)
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: (out / "model.safetensors").exists(), 300)
    assert json.loads((out / "config.json").read_text())["scheme"]["name"] == "fedavg"
    assert len(lines(out)) == 1
