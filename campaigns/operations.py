"""Every file operation of a run that changes its disk, seen before it happens through Python's audit events."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from campaigns.children import command
from campaigns.reference import Reference, arguments_of

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Operation:
    """`descriptor` is that of a write that is about to be synced."""

    name: str
    descriptor: int | None = None


def on_operation(directory: Path, act: Callable[[int, Operation], None]) -> None:
    """Call `act(count, operation)` before every change below `directory`, for the rest of this process's life.

    What `act` raises is raised by the operation.
    """
    count, root, sync = 0, str(directory), os.fsync

    def see(operation: Operation) -> None:
        nonlocal count
        count += 1
        act(count - 1, operation)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if (event in CHANGES or (event == "open" and _writes(arguments))) and str(arguments[0]).startswith(root):
            see(Operation(event))

    def fsync(descriptor: int) -> None:
        see(Operation("write", descriptor))
        sync(descriptor)

    sys.addaudithook(audit)
    os.fsync = fsync  # type: ignore[assignment]


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    return bool(flags & WRITING) if mode is None else mode != "r" and not str(mode).startswith("rb")


def spread(number: int, total: int) -> int:
    """Return an operation for a try: as many tries as there are operations reach each once, a few are spread out."""
    step = next(step for step in (61, 67, 71) if total % step)
    return number * step % total


@cache
def count_operations(known: Reference) -> int:
    """Return the number of operations of an undisturbed run."""
    place = known.config.with_name("counted")
    place.mkdir()
    reading, writing = os.pipe()

    def note(count: int, operation: Operation) -> None:
        os.write(writing, b".")

    ending = command(arguments_of(known.config, place / "run", 1), lambda: on_operation(place, note))
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        total = len(stream.read())
    assert ending.code == 0 and total > 0, ending
    return total
