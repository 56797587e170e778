"""What a deployed run reports while it works: one JSON object per line of a file.

The command that submits a run names the file; the server app appends to it if it runs on the same machine. Each event
has one key:

    {"round": {...}}       a line of `metrics.jsonl`
    {"message": "..."}     something a person should know now
    {"error": "..."}       the run cannot go on; the text says why
    {"finished": "..."}    the run directory, after the last round
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class EventWriter:
    """Appends events to a file; without a file it drops them."""

    def __init__(self, file: Path | None) -> None:
        self.file = file if file is not None and file.parent.is_dir() else None

    def write(self, kind: str, content: Any) -> None:
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({kind: content}) + "\n")


class EventReader:
    """Reads events as they are written; a line that is still being written is left for the next time."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._offset = 0

    @property
    def begun(self) -> bool:
        """Whether the server app has written anything: it runs on this machine."""
        return self.file.exists()

    def new(self) -> list[tuple[str, Any]]:
        """Return the events since the last call, as (kind, content)."""
        if not self.begun:
            return []
        with self.file.open("rb") as stream:
            stream.seek(self._offset)
            content = stream.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [item for line in whole.splitlines() for item in json.loads(line).items()]
