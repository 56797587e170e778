"""CPU seconds and memory of a program and all processes it started, read from /proc.

Frameworks start daemons that leave their parents. While this process is a child subreaper, whatever its children
leave behind becomes its own child, so that nothing escapes the sums.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PR_SET_CHILD_SUBREAPER = 36
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def subreaper() -> Iterator[None]:
    """Make orphaned descendants of this process its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    started: int
    """Ticks since boot; together with the pid a unique name of a process."""
    own: float
    """CPU seconds, user and system."""
    waited: float
    """CPU seconds of its children that ended and were waited for, and of theirs."""

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.started


def read_process(pid: int) -> Process | None:
    """Return None if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # a name may hold spaces and brackets
    user, system, child_user, child_system = (int(ticks) / TICKS for ticks in fields[11:15])
    return Process(pid, int(fields[1]), int(fields[19]), user + system, child_user + child_system)


def descendants(root: int) -> list[Process]:
    """Return all descendants of `root`, including ended ones that were not waited for."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    children: dict[int, list[Process]] = {}
    for process in filter(None, map(read_process, pids)):
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += [process.pid for process in below]
    return found


class Tree:
    """The processes that appear below this one from now on."""

    def __init__(self) -> None:
        self._root = os.getpid()
        self._before = {process.identity for process in descendants(self._root)}

    def processes(self) -> list[Process]:
        return [process for process in descendants(self._root) if process.identity not in self._before]

    def end(self, child: subprocess.Popen[str], patience: float = 10.0) -> None:
        """End `child` and all processes it left behind, and wait for them."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + patience
            for process in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)
            while time.monotonic() < deadline:
                child.poll()  # never waited for past subprocess's back: it would report a wrong exit code
                remaining = self.processes()
                for process in remaining:
                    if process.parent == self._root and process.pid != child.pid:
                        with suppress(ChildProcessError):
                            os.waitpid(process.pid, os.WNOHANG)
                if not remaining:
                    return
                time.sleep(0.05)


class CpuMeter:
    """CPU seconds that a tree used since the meter was made.

    Two sums that can only be too small; the larger counts: (1) the time of living processes and of those waited
    for, which misses children that are never waited for (SIGCHLD ignored); (2) the last seen time of every process,
    which misses the time between the last sample of a process and its end.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._seen: dict[tuple[int, int], float] = {}
        self._waited_first, self._seen_first = self._sums()

    def seconds(self) -> float:
        waited, seen = self._sums()
        return max(waited - self._waited_first, seen - self._seen_first)

    def _sums(self) -> tuple[float, float]:
        ours, below = os.times(), self._tree.processes()
        self._seen.update({process.identity: process.own for process in below})
        waited = ours.children_user + ours.children_system + sum(p.own + p.waited for p in below)
        return waited, sum(self._seen.values())


class MemoryPeak:
    """The most memory a tree held in bytes, sampled while the context is open; shared pages count once (PSS)."""

    def __init__(self, tree: Tree, interval: float = 0.5) -> None:
        self.peak = 0
        self._tree, self._interval = tree, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def look(self) -> None:
        self.peak = max(self.peak, sum(_pss(process.pid) for process in self._tree.processes()))

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.look()


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:  # it has ended, or has no memory any more
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
