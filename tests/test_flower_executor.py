"""The process that serves a node's messages: one copy per message, tokens in memory, and a new one if it is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from isfl.engines.flower.executor import ClientExecutor
from isfl.engines.flower.processes import environment
from tests.federations import wait_for

SHOWN = """
import json, os, sys
from isfl.engines.flower import warm

def shown():
    token = open(sys.argv[sys.argv.index("--token-file") + 1]).read()
    print(json.dumps({"pid": os.getpid(), "parent": os.getppid(), "argv": sys.argv, "token": token}), flush=True)

warm.import_module = lambda name: None
warm.flwr_clientapp = shown
warm.main()
"""


def test_every_message_gets_a_copy_of_the_warm_process_and_its_token_in_memory() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SHOWN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(None),
    )
    requests = [{"options": ["--insecure"], "token": "ab" * 32}, {"options": [], "token": "cd" * 32}]
    said, _ = process.communicate("".join(json.dumps(request) + "\n" for request in requests), timeout=120)
    served = sorted((json.loads(line) for line in said.splitlines()), key=lambda one: str(one["token"]))
    assert process.returncode == 0 and [one["token"] for one in served] == ["ab" * 32, "cd" * 32]
    assert len({process.pid, *(one["pid"] for one in served)}) == 3
    for one in served:
        assert one["token"] not in " ".join(one["argv"]) and "--parent-pid" in one["argv"]
    assert "--insecure" in served[0]["argv"] and "--insecure" not in served[1]["argv"]


def test_a_killed_warm_process_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def copied() -> subprocess.Popen[bytes]:
        with (tmp_path / f"{len(started)}").open("wb") as file:
            started.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file))
        return started[-1]

    monkeypatch.setattr(ClientExecutor, "_started", staticmethod(copied))
    executor = ClientExecutor("127.0.0.1:1", b"secret")
    executor.launch("first")
    wait_for(lambda: (tmp_path / "0").stat().st_size > 0, 10)
    started[0].kill()
    started[0].wait()
    executor.launch("second")
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    tokens = [json.loads((tmp_path / name).read_text())["token"] for name in ("0", "1")]
    assert tokens == ["first", "second"]
