"""Write files and directories completely or not at all, even if the process or the disk fails."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def cache_directory() -> Path:
    """Return `ISFL_CACHE`, or else the user's cache directory."""
    if given := os.environ.get("ISFL_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isfl"


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file; `ValueError` for anything else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{file.name} is nested too deep") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file.name} holds no JSON object")
    return content


def appear(path: Path, files: Mapping[str, bytes]) -> None:
    """Create a directory with these files, complete or not at all; remove leftovers of earlier attempts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name[:100]}-draft-"
    for stale in path.parent.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=path.parent) as scratch:
        draft = Path(scratch) / "directory"
        draft.mkdir()
        for name, content in files.items():
            write_whole(draft / name, content)
        draft.rename(path)


def write_whole(file: Path, content: bytes) -> None:
    """Write a file, complete and on disk, or leave it as it was."""
    # A unique name: another process, perhaps on another machine, may still be writing the same file.
    temporary = file.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
        _sync_directory(file.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
