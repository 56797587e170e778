"""Several processes on one run directory, a clock that goes back, and memory that runs out."""

from __future__ import annotations

import os
import random
import resource
import time
from dataclasses import replace
from pathlib import Path

from campaigns.children import Child, command
from campaigns.disk import after
from campaigns.reference import arguments_of, begun, copied, reference, resumed
from campaigns.verdicts import Judged, Verdict
from isfl.engines.local import executor, worker


def together(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Let two or three processes start or resume one run at nearly the same time: one works, the others are refused."""
    known, run = reference(scratch.parent), scratch / "run"
    if chance.random() < 0.5:
        copied(known.stopped, run)
    children = []
    for _ in range(chance.randint(2, 3)):
        time.sleep(chance.uniform(0.0, 0.3 * known.seconds))
        children.append(begun(known.config, run, chance.choice((1, 2))))
    endings = [child.wait() for child in children]
    what = f"{len(children)} processes, exit codes {[ending.code for ending in endings]}"
    for ending in endings:
        if ending.code != 0 and ending.error_line is None:
            return Judged(Verdict.UNCLEAR, f"{what}: {ending}")
    if all(ending.code != 0 for ending in endings):
        return Judged(Verdict.LOST, f"{what}: nobody worked: {endings[0]}")
    return replace(resumed(known, run, what), faults=sum(ending.code != 0 for ending in endings))


def clock_goes_back(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Set the clock back between and during commands, with a kill in between."""
    known, run = reference(scratch.parent), scratch / "run"
    shift = chance.choice((1.0, 3600.0, 86400.0, 1e9))

    def back() -> None:
        real, began = time.time, time.time()
        jump = began + chance.uniform(0.0, known.seconds)

        def slipped() -> float:
            return real() - (shift if real() > jump else 0.0)

        time.time = slipped
        time.time_ns = lambda: int(slipped() * 1e9)

    child = Child(arguments_of(known.config, run, 1), back)
    end = time.monotonic() + chance.uniform(0.2, 0.9) * known.seconds
    while child.running() and time.monotonic() < end:
        time.sleep(0.001)
    killed = child.kill()
    later = time.time() + shift
    for file in [*run.rglob("*"), run] if run.exists() else []:
        os.utime(file, (later, later))  # as if they were from the future
    faults = int(killed and run.exists())
    return replace(resumed(known, run, f"clock back by {shift:.0f} s"), faults=faults)


def memory_of_a_worker(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Limit the memory of every worker to a little more than it has when it starts, then resume without the limit."""
    known, run, more = reference(scratch.parent), scratch / "run", round(300_000 ** chance.random()) << 10

    def limit() -> None:
        original = worker.limit_heap

        def limited() -> None:
            original()
            size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))

        vars(executor)["limit_heap"] = limited  # forked workers inherit it

    ending = command(arguments_of(known.config, run, 2), limit)
    return after(known, run, ending, f"workers with {more >> 10} kB more", jobs=2)
