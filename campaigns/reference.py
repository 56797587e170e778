"""The small run that every campaign disturbs, its undisturbed outcome, and the verdict on a disturbed one."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.resumable import outcome

from campaigns.children import Child, Ending, command
from campaigns.operations import FREEING, Operation, in_turn, on_operation
from campaigns.verdicts import Judged, Verdict
from isfl import layout

CONFIG = """
target = {kind = "uniform"}
data = {public = 40}
split = {kind = "mixed", clients = 4, shard_size = 20, nr = 0.8}
model = {name = "small-cnn", width = 0.25}
training = {rounds = 4, local_epochs = 1, batch_size = 16, participation = 0.5, batchnorm = "local"}
[scheme]
name = "isfl"
sampling = {where = "client", lipschitz_at = "client"}
objective = {kind = "moon", calibrate = true}
aggregation = {rule = "adam"}
"""
"""Every kind of state between rounds: clients' models, statistics and probabilities, buffers of the server."""


@dataclass(frozen=True)
class Reference:
    """The configuration file, an undisturbed run of it, and a copy of a run that stopped after three rounds."""

    config: Path
    whole: Path
    stopped: Path
    seconds: float
    """How long the undisturbed run took."""

    @property
    def outcome(self) -> tuple[bytes, bytes, list[dict[str, Any]]]:
        return outcome(self.whole)


@cache
def reference(scratch: Path) -> Reference:
    """Make the runs that others are compared with, in a directory that stays."""
    config = scratch / "reference.toml"
    config.write_text(CONFIG, encoding="utf-8")
    began = time.monotonic()
    ending = command(["run", str(config), "--jobs", "1", "--out", str(scratch / "whole")])
    assert ending.code == 0, ending
    seconds = time.monotonic() - began
    stopped = scratch / "stopped"
    checkpoint = stopped / layout.CHECKPOINTS / "round-00003.json"

    def stop(count: int, operation: Operation) -> None:
        if checkpoint.exists():
            os.kill(os.getpid(), signal.SIGKILL)

    ending = command(arguments_of(config, stopped, 1), lambda: on_operation(stopped, stop))
    assert ending.code == -signal.SIGKILL, ending
    return Reference(config, scratch / "whole", stopped, seconds)


@cache
def operations(known: Reference) -> tuple[str, ...]:
    """Return the kinds of the file operations of an undisturbed run, as they happen."""
    place = known.config.with_name("counted")
    place.mkdir()
    reading, writing = os.pipe()

    def note(count: int, operation: Operation) -> None:
        os.write(writing, f"{operation.kind}\n".encode())

    ending = command(arguments_of(known.config, place / "run", 1), lambda: on_operation(place, note))
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        kinds = tuple(stream.read().splitlines())
    assert ending.code == 0 and kinds, ending
    return kinds


@cache
def places(scratch: Path, need_room: bool = False) -> list[int]:
    """Return the operations to disturb, each kind in turn; with `need_room`, only those that a full disk disturbs."""
    kinds = operations(reference(scratch))
    found = [place for place, kind in enumerate(kinds) if not (need_room and kind.startswith(FREEING))]
    return [found[turn] for turn in in_turn([kinds[place] for place in found])]


def begun(config: Path, run: Path, jobs: int) -> Child:
    """Start the run, or resume it if its directory exists."""
    return Child(arguments_of(config, run, jobs))


def arguments_of(config: Path, run: Path, jobs: int) -> list[str]:
    if run.exists():
        return ["resume", str(run), "--jobs", str(jobs)]
    return ["run", str(config), "--jobs", str(jobs), "--out", str(run)]


def copied(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def resumed(known: Reference, run: Path, what: str, jobs: int = 1) -> Judged:
    """Start or resume the run without a fault: it has to finish with the same bits."""
    ending = begun(known.config, run, jobs).wait()
    if ending.code != 0:
        return Judged(Verdict.LOST, f"{what}; then: {ending}")
    return compared(known, run, what)


def compared(known: Reference, run: Path, what: str) -> Judged:
    try:
        same = outcome(run) == known.outcome
    except (OSError, ValueError, KeyError) as error:
        return Judged(Verdict.DIFFERENT, f"{what}; its files cannot be read ({error})")
    return Judged(Verdict.SAME if same else Verdict.DIFFERENT, what)


def refused_or_same(known: Reference, run: Path, ending: Ending, what: str) -> Judged:
    """Judge a command that may refuse what it finds: one line, or the same bits."""
    if ending.code == 0:
        return compared(known, run, what)
    if (line := ending.error_line) is not None:
        return Judged(Verdict.REFUSED, f"{what}: {line}")
    return Judged(Verdict.UNCLEAR, f"{what}: {ending}")
