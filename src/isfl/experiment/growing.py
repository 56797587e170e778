"""Files of a run that grow by one line per round, with a running checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isfl.errors import UserError


@dataclass(frozen=True)
class Prefix:
    """The part of a growing file that belongs to the rounds so far."""

    bytes: int
    sha256: str


class GrowingFile:
    """A file of JSON lines. Its checksum grows with it: the content is read once per object, not once per round."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._length = 0
        self._digest: hashlib._Hash | None = None
        """Of the first `_length` bytes; None until they have been read."""

    @property
    def prefix(self) -> Prefix:
        """Length and SHA-256 of all that is recorded so far."""
        digest = self._known()
        return Prefix(self._length, digest.hexdigest())

    def cut(self, length: int) -> None:
        """Keep this many bytes; an absent file becomes an empty one."""
        self.path.touch()
        os.truncate(self.path, length)
        self._digest = None

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a line, on disk before this returns."""
        digest, content = self._known(), (json.dumps(line, allow_nan=False) + "\n").encode()
        with self.path.open("ab") as stream:
            if stream.tell() != self._length:
                raise UserError(f"{self.path}: another program changed it during the run; resume with isfl resume")
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        digest.update(content)
        self._length += len(content)

    def _known(self) -> hashlib._Hash:
        if self._digest is None:
            content = self.path.read_bytes()
            self._length, self._digest = len(content), hashlib.sha256(content)
        return self._digest


def is_prefix(file: Path, prefix: Prefix, whole: bool = False) -> bool:
    """Return whether the file begins with these bytes; with `whole`, whether it has no others."""
    if not file.exists():
        return False
    with file.open("rb") as stream:
        same = hashlib.sha256(stream.read(prefix.bytes)).hexdigest() == prefix.sha256
        return same and not (whole and stream.read(1))
