"""Reading JSON-lines files that another process may still be writing, without parsing any line twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class LineReader:
    """The complete lines of a file that grows by one line per round.

    A call reads only what was appended since the last one, and nothing if the file did not change. A file that was cut
    or rewritten, as by a resumed run, is read again from the start. Half a line at the end waits for its other half.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._seen: tuple[int, int, int] | None = None
        self._offset = 0
        self._last = b""
        """The last complete line: while the file still has it at its place, what was read before is still valid."""
        self._lines: list[Line] = []
        self._damaged: int | None = None

    def read(self) -> list[Line]:
        """Return the lines so far, up to the first damaged one; none while the file does not exist."""
        try:
            state = self.file.stat()
            seen = (state.st_ino, state.st_size, state.st_mtime_ns)
            if seen != self._seen:
                self._read_on()
                self._seen = seen
        except OSError:
            self._start_again()
        return list(self._lines)

    @property
    def damaged(self) -> int | None:
        """The number of the line, from 1, that is not the JSON object of its round; nothing after it is read."""
        return self._damaged

    def _start_again(self) -> None:
        self._seen, self._offset, self._last, self._lines, self._damaged = None, 0, b"", [], None

    def _read_on(self) -> None:
        with self.file.open("rb") as stream:
            stream.seek(self._offset - len(self._last))
            if stream.read(len(self._last)) != self._last:
                self._start_again()
                stream.seek(0)
            new = stream.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        for raw in complete.splitlines(keepends=True):
            self._last = raw
            self._take(raw)

    def _take(self, raw: bytes) -> None:
        if self._damaged is not None:
            return
        number = len(self._lines) + 1
        try:
            line = json.loads(raw.decode("utf-8"))
        except ValueError:
            line = None
        if isinstance(line, dict) and line.get("round") == number:
            self._lines.append(line)
        else:
            self._damaged = number


def read_lines(file: Path) -> list[Line]:
    """Return the complete lines of a file once; see `LineReader`."""
    return LineReader(file).read()
