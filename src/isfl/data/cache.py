"""Decoded data sets on disk: memory-mapped arrays with checksums, outside any repository.

A data set is a directory that appears whole: it is written under a temporary name, synced and renamed. Every file's
SHA-256 is in the manifest and checked before use; a damaged data set is never used.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from isfl.errors import UserError
from isfl.files import cache_directory

MANIFEST = "manifest.json"


def store(name: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a data set, one process at a time; readers never see a half-written one."""
    root = cache_directory()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / ".lock").open("w") as lock, tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root) as scratch:
            fcntl.flock(lock, fcntl.LOCK_EX)
            draft, aside = Path(scratch) / "new", Path(scratch) / "old"
            draft.mkdir()
            for key, array in arrays.items():
                with (draft / f"{key}.npy").open("wb") as stream:
                    np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
                    _sync(stream)
            checksums = {file.name: sha256(file) for file in sorted(draft.iterdir())}
            with (draft / MANIFEST).open("w", encoding="utf-8") as stream:
                json.dump({"sha256": checksums}, stream, indent=2)
                _sync(stream)
            if (root / name).exists():
                (root / name).rename(aside)
            draft.rename(root / name)
    except OSError as error:
        raise UserError(
            f"{root}: the cache cannot be written ({error.strerror}); set ISFL_CACHE to another directory"
        ) from None


def _sync(stream: IO[Any]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def recall(name: str, expected: Sequence[str]) -> dict[str, np.ndarray] | None:
    """Return the arrays of a stored data set, memory-mapped, or None if it is absent or damaged."""
    directory = cache_directory() / name
    if not directory.is_dir():
        return None
    arrays = {}
    try:
        checksums = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        for key in expected:
            file = directory / f"{key}.npy"
            if sha256(file) != checksums[file.name]:
                raise ValueError(f"{file.name} has another checksum")
            # Copy-on-write: the file is shared between processes and never changed.
            arrays[key] = np.load(file, mmap_mode="c", allow_pickle=False)
    except Exception as error:  # a damaged file can fail in any way
        warnings.warn(f"{directory} is damaged ({error}); it is not used", stacklevel=2)
        return None
    return arrays


def recall_or_store(
    name: str, expected: Sequence[str], fetch: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the arrays of a stored data set; fetch and store it first if it is absent or damaged."""
    arrays = recall(name, expected)
    if arrays is None:
        store(name, fetch())
        arrays = recall(name, expected)
        assert arrays is not None
    return arrays


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
