"""Run contestants in turn and measure each of their rounds.

A contestant is a program that follows the protocol in `contestants/clock.py`. Every visit is a new process: nothing of
one contestant is alive while another is measured, neither its daemons nor pages that both would share.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from benchmarks.process_tree import CpuMeter, MemoryPeak, Tree, subreaper


@dataclass(frozen=True)
class Contestant:
    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Round:
    seconds: float
    cpu_seconds: float
    images: int
    loss: float


@dataclass
class Visit:
    """One start of a contestant: a warm-up round, then the measured rounds."""

    contestant: str
    repetition: int
    rounds: list[Round] = field(default_factory=list)
    peak_bytes: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    failure: str | None = None


class ContestantError(Exception):
    """A contestant failed; the text gives the reason."""


def contest(
    contestants: Sequence[Contestant], repetitions: int, visit: Callable[[Contestant, int], Visit]
) -> list[Visit]:
    """Run A B C A B C ..., so that a drift of the machine affects all; a failed contestant is not run again."""
    visits: list[Visit] = []
    failed: set[str] = set()
    for repetition in range(repetitions):
        for contestant in contestants:
            if contestant.name not in failed:
                visits.append(visit(contestant, repetition))
                if visits[-1].failure:
                    failed.add(contestant.name)
    return visits


def visit(contestant: Contestant, repetition: int, rounds: int, images: int, patience: float) -> Visit:
    """Start it, let it warm up, measure `rounds` rounds; `patience` is the longest wait for an answer, in seconds."""
    result, tree = Visit(contestant.name, repetition), Tree()
    with tempfile.TemporaryFile("w+") as errors, subreaper(), MemoryPeak(tree) as memory:
        child = subprocess.Popen(
            contestant.command,
            env=contestant.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        answers = _Answers(child, patience)
        try:
            result.versions = answers.next("versions")["versions"]
            for number in range(rounds + 1):
                meter = CpuMeter(tree)
                answers.ask()
                answer = answers.next("round")
                cpu_seconds = meter.seconds()
                memory.look()  # a round may be shorter than the sampler's interval
                if answer["images"] != images:
                    raise ContestantError(f"trained on {answer['images']} images in a round instead of {images}")
                if number > 0:
                    result.rounds.append(Round(answer["seconds"], cpu_seconds, images, answer["loss"]))
            _wait(child)
        except ContestantError as failure:
            result.failure = _with_last_line(str(failure), errors)
        finally:
            tree.end(child)
            answers.close()
    result.peak_bytes = memory.peak
    return result


class _Answers:
    """The lines that a contestant prints; lines of its libraries are ignored."""

    def __init__(self, child: subprocess.Popen[str], patience: float) -> None:
        self._child, self._patience = child, patience
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write("go\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise ContestantError("ended early") from None

    def next(self, key: str) -> dict[str, Any]:
        """Return the next answer that has `key`."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise ContestantError(f"no answer within {self._patience:.0f} s") from None
            if line is None:
                raise ContestantError(f"ended early (exit code {_wait(self._child)})")
            if line.startswith("{"):
                try:
                    answer = json.loads(line)
                except json.JSONDecodeError:
                    continue
                if key in answer:
                    return answer

    def close(self) -> None:
        """After its end."""
        self._reader.join()
        assert self._child.stdin is not None and self._child.stdout is not None
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        self._child.stdout.close()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line)
        self._lines.put(None)


def _wait(child: subprocess.Popen[str], patience: float = 20.0) -> int | None:
    """Give the contestant time to exit, then end what is left of it."""
    try:
        return child.wait(patience)
    except subprocess.TimeoutExpired:
        return None


def _with_last_line(reason: str, errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
    return f"{reason}: {lines[-1]}" if lines else reason


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment with `changes`, without variables that affect another Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**kept, **changes}
