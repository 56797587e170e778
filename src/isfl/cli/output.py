"""How an interrupted command can be resumed."""

from __future__ import annotations

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
