"""Reading JSON-lines files that another process may still be writing, without parsing any line twice."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

Line = dict[str, Any]

_NUMBERS = (
    "accuracy_",
    "worst_client",
    "train_loss",
    "rho_",
    "gradient_square",
    "bytes_",
    "dropped_samples",
    "simulated_",
    "clipped_values",
)
"""Keys that begin like this hold a number."""
_VECTORS = ("recall", "participants", "late")
CLIENT_MEASURES = ("client_accuracy", "client_update_norm", "client_drift")
"""One number per client: a list, or numbers by client where there are too many clients to list all."""
_TABLES = ("seconds", "gradient_evaluations", "drift", "bound", "target_error")
_BY_CLIENT = ("probabilities", "lipschitz")


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
        except (ValueError, RecursionError):
            line = None
        if isinstance(line, dict) and line.get("round") == number and _sound(line):
            self._lines.append(line)
        else:
            self._damaged = number


def _sound(line: Line) -> bool:
    """Return whether the known keys of a line hold what isfl writes there; None stands for what was not measured."""
    return all(_fits(key, value) for key, value in line.items() if value is not None)


def _fits(key: str, value: Any) -> bool:
    if key.startswith(_NUMBERS):
        return _is_number(value)
    if key in _VECTORS:
        return _is_vector(value)
    if key in CLIENT_MEASURES and isinstance(value, dict):
        return all(k.isdecimal() and (v is None or _is_number(v)) for k, v in value.items())
    if key in CLIENT_MEASURES:
        return _is_vector(value)
    if key == "confusion":
        return isinstance(value, list) and all(map(_is_vector, value))
    if key in _TABLES:
        return isinstance(value, dict) and all(v is None or _is_number(v) or _is_vector(v) for v in value.values())
    if key in _BY_CLIENT:
        return isinstance(value, dict) and all(k.isdecimal() and _is_vector(v, 0.0) for k, v in value.items())
    if key == "refused":
        return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
    return True


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _is_vector(value: Any, least: float = -math.inf) -> bool:
    return isinstance(value, list) and all(item is None or (_is_number(item) and item >= least) for item in value)


def read_lines(file: Path) -> list[Line]:
    """Return the complete lines of a file once; see `LineReader`."""
    return LineReader(file).read()
