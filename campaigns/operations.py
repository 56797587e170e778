"""Every file operation of a run that changes its disk, seen before it happens through Python's audit events."""

from __future__ import annotations

import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
FREEING = ("os.remove", "os.rmdir")
"""These need no room on the disk."""
WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Operation:
    """`descriptor` is that of a write that is about to be synced."""

    name: str
    file: str
    descriptor: int | None = None

    @property
    def kind(self) -> str:
        """The name and the kind of file: without numbers of rounds and clients, and without random names."""
        return f"{self.name} {kind_of_file(Path(self.file).name)}"


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
            see(Operation(event, str(arguments[0])))

    def fsync(descriptor: int) -> None:
        see(Operation("write", str(Path(f"/proc/self/fd/{descriptor}").readlink()), descriptor))
        sync(descriptor)

    sys.addaudithook(audit)
    os.fsync = fsync  # type: ignore[assignment]


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    return bool(flags & WRITING) if mode is None else mode != "r" and not str(mode).startswith("rb")


def kind_of_file(name: str) -> str:
    """Return the name of a file without what differs between files of one kind."""
    return re.sub(r"\d+", "#", re.sub(r"\.\d+-[0-9a-f]+\.tmp$|-draft-\w+$", "-new", name))


def in_turn(kinds: Sequence[str]) -> list[int]:
    """Return all positions, in an order in which every kind has its first one before any has its second."""
    order, seen = random.Random(0).sample(range(len(kinds)), len(kinds)), Counter[str]()
    turns = {}
    for position in order:
        turns[position] = seen[kinds[position]]
        seen[kinds[position]] += 1
    return sorted(order, key=turns.__getitem__)
