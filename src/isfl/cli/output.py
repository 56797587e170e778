"""Where commands write their runs, and how an interrupted command can be resumed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isfl.errors import InterruptionError


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Turn Ctrl-C into a message that says how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        hint = f"; resume with: isfl resume {out}" if out.exists() else ""
        raise InterruptionError(f"interrupted{hint}") from None


def fresh(name: str) -> Path:
    """Return a directory name with the current time; a second run within the same second gets a number."""
    base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path
