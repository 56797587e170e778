"""Processes that outlive the command that started them: start, find and stop exactly those."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from isfl.errors import UserError
from isfl.files import write_whole

PROCESSES = "processes.json"
DOWN_SECONDS = 15.0
_STARTED: list[subprocess.Popen[bytes]] = []
"""Children of this process. They are meant to outlive it."""


@dataclass(frozen=True)
class Process:
    """A process that this module started; its start time identifies it, because process ids are reused."""

    name: str
    pid: int
    started: str
    """The kernel's start time."""


def alive(directory: Path) -> list[Process]:
    """Return the recorded processes that are still running."""
    file = directory / PROCESSES
    if not file.is_file():
        return []
    recorded = [Process(**item) for item in json.loads(file.read_text(encoding="utf-8"))]
    return [process for process in recorded if runs(process)]


def stop(processes: Sequence[Process]) -> None:
    """Terminate the processes and their descendants; kill those that do not end in time."""
    family = [member for process in processes for member in _family(process)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in family:
            if runs(process):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)
        end = time.monotonic() + DOWN_SECONDS
        while any(map(runs, family)) and time.monotonic() < end:
            time.sleep(0.1)


def start(directory: Path, name: str, command: Sequence[str], home: Path) -> Process:
    """Start a process in a new session, so that it outlives the shell and can be stopped with its children."""
    with open(directory / f"{name}.log", "ab", opener=_private) as log:
        process = subprocess.Popen(
            [program(command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(home),
            cwd=directory,
            start_new_session=True,
        )
    _STARTED.append(process)
    return Process(name, process.pid, _start_time(process.pid) or "")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def record(directory: Path, processes: Mapping[str, Process]) -> None:
    write_whole(directory / PROCESSES, json.dumps([asdict(p) for p in processes.values()]).encode())


def program(name: str) -> str:
    """Return the path of a Flower program, from the environment of this process."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise UserError(f"{name} is not installed; pip install 'isfl[flower]'")
    return found


def environment(home: Path | None) -> dict[str, str]:
    """Return the environment of Flower's processes: no telemetry, no installation at run time, one thread."""
    settings = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    if home is not None:
        settings["FLWR_HOME"] = str(home)
    return {**os.environ, **settings}


def _start_time(pid: int) -> str | None:
    try:
        content = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    state, *rest = content.rpartition(")")[2].split()
    return None if state == "Z" else rest[18]


def runs(process: Process) -> bool:
    for child in _STARTED:
        child.poll()  # reaps a child that ended, so that it is no longer listed
    return _start_time(process.pid) == process.started


def _family(process: Process) -> list[Process]:
    """Return a process and its descendants: SuperLink and SuperNodes start others in separate groups."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = entry.read_text(encoding="utf-8").rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, queue = [process], [process.pid]
    while queue:
        children = parents.get(queue.pop(), [])
        queue += children
        found += [Process(process.name, pid, _start_time(pid) or "") for pid in children]
    return found
