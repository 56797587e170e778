"""A secured federation of real processes: strangers and unsigned apps are refused, and secrets stay secret.

The tests share one federation of three nodes and one run. Node 2 trusts the signer of another app.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.runtime import RuntimeHttpClient

from isfl.engines.flower import deployment
from isfl.engines.flower.access import add_account, remove_account
from isfl.engines.flower.apps import SIGNING_KEY, TRUSTED, app_files, sign
from isfl.engines.flower.control import Control
from isfl.engines.flower.deployment import FLOWER_HOME, Deployment, control, down, online, up
from isfl.engines.flower.keys import LOOPBACK, make_node_key
from isfl.engines.flower.processes import Process, _family, _start_time, environment, program
from isfl.errors import UserError
from isfl.experiment import submission
from isfl.problem.config import load_config
from tests.federations import lines, small_config

pytestmark = pytest.mark.timeout(900)
PUBLIC = {"ca.crt", "server.crt", "key.pub", "registered", "accounts.json", "apps.json", TRUSTED, "config.toml"} | {
    "deployment.json",
    "processes.json",
}
"""Files that others may read."""


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory, other = tmp_path_factory.mktemp("federation"), tmp_path_factory.mktemp("other")
    deployment._settled(directory, 3, True, (), ())
    sign(other)
    (directory / "node-2" / TRUSTED).write_bytes((other / TRUSTED).read_bytes())
    try:
        yield up(directory, 3, secure=True, tell=print)
    finally:
        down(directory)


@dataclass
class Outcome:
    out: Path
    told: list[str] = field(default_factory=list)
    commands: set[str] = field(default_factory=set)
    """Command lines of the processes that lived during the run."""
    strangers: dict[str, str] = field(default_factory=dict)
    """What nodes say that must not be let in."""


@pytest.fixture(scope="module")
def outcome(federation: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run one round with clients 0 and 1, while strangers try to join and all command lines are read."""
    scratch = tmp_path_factory.mktemp("run")
    found, over = Outcome(scratch / "out"), threading.Event()
    watch = threading.Thread(target=_watch, args=(found.commands, over))
    watch.start()
    strangers = _strangers(federation, scratch)
    changes = ["split.clients=2", "training.rounds=1", "training.evaluate_clients=0"]
    settings = load_config(small_config(scratch), changes)
    try:
        submission.submit(settings, found.out, str(federation.directory), lambda line: None, found.told.append)
    finally:
        over.set()
        watch.join()
        for who, process in strangers.items():
            os.killpg(process.pid, signal.SIGKILL)
            found.strangers[who] = process.communicate(timeout=10)[0]
    return found


def _watch(commands: set[str], over: threading.Event) -> None:
    this = Process("", os.getpid(), _start_time(os.getpid()) or "")
    while not over.wait(0.2):
        for process in _family(this)[1:]:
            try:
                content = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            except OSError:
                continue
            commands.add(content.replace(b"\0", b" ").decode())


def _strangers(federation: Deployment, scratch: Path) -> dict[str, subprocess.Popen[str]]:
    make_node_key(scratch)
    link = [program("flower-supernode"), "--superlink", federation.address, "--host", LOOPBACK, "--port"]
    trust = ["--root-certificates", str(federation.directory / "ca.crt")]
    options = {
        "without TLS": ["--insecure"],
        "without a key": trust,
        "with an unregistered key": [*trust, "--auth-supernode-private-key", str(scratch / "key")],
    }
    return {
        who: subprocess.Popen(
            [*link, str(federation.port + 50 + i), *own],
            env=environment(scratch),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for i, (who, own) in enumerate(options.items())
    }


# ------------------------------------------------------------ who may take part


def test_known_nodes_take_part_and_strangers_do_not(federation: Deployment, outcome: Outcome) -> None:
    assert lines(outcome.out)[0]["refused"] == {} and online(federation) == 3
    assert "SuperNode ID" in (federation.directory / "node-0.log").read_text(), "what a node says that is let in"
    for who, words in outcome.strangers.items():
        assert "Starting Flower SuperNode" in words and "SuperNode ID" not in words, f"{who}: {words}"


def test_a_node_runs_no_app_that_its_operator_does_not_trust(federation: Deployment, outcome: Outcome) -> None:
    assert any("cannot take part: its operator does not trust this app" in line for line in outcome.told)
    log = (federation.directory / "node-2.log").read_text()
    assert "FAB verification failed" in log and "flwr-clientapp" not in log
    assert "flwr-clientapp" in (federation.directory / "node-0.log").read_text()


# ------------------------------------------------------------ who may start runs


def test_the_control_api_needs_the_token_of_an_account(federation: Deployment) -> None:
    secured = control(federation)
    token = add_account(federation.directory, "alice")
    assert Control(secured.address, secured.root_certificates, token).online() == 3
    remove_account(federation.directory, "alice")
    for wrong in (None, "wrong", token):
        with pytest.raises(httpx.HTTPStatusError, match="401"):
            Control(secured.address, secured.root_certificates, wrong).online()
    assert secured.online() == 3


def test_tasks_of_the_superlink_need_its_secret(federation: Deployment) -> None:
    """Otherwise anyone could take the server's part of a run, and send messages to the nodes."""
    stranger = RuntimeHttpClient.from_server_address(
        federation.address, False, (federation.directory / "ca.crt").read_bytes(), []
    )
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        stranger.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"]))
    stranger.close()


def test_a_run_without_a_token_is_refused_in_one_line(
    federation: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_bytes((federation.directory / FLOWER_HOME / "config.toml").read_bytes())
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"no valid token; .* isfl flower login CONNECTION TOKENFILE$"):
        submission.submit(load_config(small_config(tmp_path)), tmp_path / "out", "isfl", lambda line: None, print)


def test_an_app_that_is_not_signed_is_not_started(
    federation: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {**app_files(), "extra.py": "print('hello')"}
    monkeypatch.setattr(submission, "app_files", lambda: files)
    config, connection = load_config(small_config(tmp_path)), str(federation.directory)
    with pytest.raises(UserError, match="this app is not signed for this federation"):
        submission.submit(config, tmp_path / "out", connection, lambda line: None, print)


# ------------------------------------------------------------ secrets


def _secrets(federation: Deployment) -> list[str]:
    """Return the account's token, and a line of every private key."""
    directory, token = federation.directory, control(federation).token
    files = [directory / name for name in ("ca.key", "server.key", SIGNING_KEY)]
    files += [directory / f"node-{k}" / "key" for k in range(3)]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files) and token
    return [token, *(file.read_text().splitlines()[2] for file in files)]


def test_only_public_files_can_be_read_by_others(federation: Deployment, outcome: Outcome) -> None:
    files = [file for file in federation.directory.rglob("*") if file.is_file()]
    assert {file.name for file in files if file.stat().st_mode & 0o077} <= PUBLIC
    assert {"superlink.db", "superlink.log", "node-0.log", "credentials.yaml"} <= {file.name for file in files}
    content = b"".join(file.read_bytes() for file in files if file.name in PUBLIC or file.suffix == ".log")
    assert not [secret for secret in _secrets(federation) if secret.encode() in content]


def test_no_command_line_has_a_secret(federation: Deployment, outcome: Outcome) -> None:
    shown = "\n".join(outcome.commands)
    for name in ("flwr-serverapp", "flwr-clientapp", "flower superlink", "flower node", "flwr run"):
        assert name in shown
    assert not [secret for secret in _secrets(federation) if secret in shown]
    assert "--token " not in shown and not re.search(r"\b[0-9a-f]{64,}\b", shown), "tokens of Flower's tasks"
