"""SIGKILL at random times, of the run and of its workers, and in the middle of every kind of file operation."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from campaigns.children import command
from campaigns.operations import Operation, on_operation
from campaigns.reference import arguments_of, begun, operations, places, reference, resumed
from campaigns.verdicts import Judged, Verdict


def killed_at_random(jobs: int, group: bool, number: int, chance: random.Random, scratch: Path) -> Judged:
    """Kill a run one to three times, each at a random time; with `group`, its workers at the same time."""
    known, run, times = reference(scratch.parent), scratch / "run", []
    for _ in range(chance.randint(1, 3)):
        child = begun(known.config, run, jobs)
        delay = chance.uniform(0.0, known.seconds)
        _wait(child.running, delay)
        if group and child.running():
            os.killpg(child.pid, signal.SIGKILL)
        if child.kill() or child.wait().code == -signal.SIGKILL:
            times.append(f"{delay:.3f} s")
    judged = resumed(known, run, f"killed at {', '.join(times) or 'no time'}", jobs)
    return replace(judged, faults=len(times))


def worker_killed(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Kill one of two workers at a random time: the run has to finish without help."""
    known, run = reference(scratch.parent), scratch / "run"
    child = begun(known.config, run, 2)
    _wait(child.running, chance.uniform(0.0, known.seconds))
    _wait(lambda: child.running() and not child.workers(), 60.0)
    workers, faults = child.workers(), 0
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
            faults = 1
    ending, what = child.wait(), f"killed {faults} of {len(workers)} workers"
    if ending.code == 0:
        return replace(resumed(known, run, what), faults=faults)
    return Judged(Verdict.LOST, f"{what}: {ending}", faults)


def killed_in_operation(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Kill the run at one of its file operations; of a write, half of the new bytes are on disk."""
    known, run = reference(scratch.parent), scratch / "run"
    order, kinds = places(scratch.parent), operations(known)
    place = order[number % len(order)]
    what = f"killed at file operation {place + 1} of {len(kinds)} ({kinds[place]})"
    safe: dict[int, int] = {}

    def die(count: int, operation: Operation) -> None:
        if operation.descriptor is not None:
            file = os.fstat(operation.descriptor)
            if count == place:
                with contextlib.suppress(OSError):  # a directory cannot be cut
                    os.ftruncate(operation.descriptor, (safe.get(file.st_ino, 0) + file.st_size) // 2)
            safe[file.st_ino] = file.st_size
        if count == place:
            os.kill(os.getpid(), signal.SIGKILL)

    ending = command(arguments_of(known.config, run, 1), lambda: on_operation(scratch, die))
    if ending.code not in (0, -signal.SIGKILL):
        return Judged(Verdict.UNCLEAR, f"{what}: {ending}")
    return replace(resumed(known, run, what), faults=int(ending.code != 0))


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    """Wait while the condition holds, for at most `seconds`."""
    end = time.monotonic() + seconds
    while condition() and time.monotonic() < end:
        time.sleep(0.001)
