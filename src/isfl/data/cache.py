"""Decoded data sets on disk: memory-mapped arrays with checksums, outside any repository.

A data set is a directory that appears whole: it is written under a temporary name, synced and renamed. Every file's
SHA-256 stands in its manifest and is compared before use; a damaged data set is set aside, never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np

MANIFEST = "manifest.json"


def cache_directory() -> Path:
    """`ISFL_CACHE`, else the user's cache directory."""
    if given := os.environ.get("ISFL_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isfl"


def store(name: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a data set; whoever finishes first wins, nobody sees half of one."""
    root = cache_directory()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root) as scratch:
        draft = Path(scratch) / name
        draft.mkdir()
        checksums = {}
        for key, array in arrays.items():
            file = draft / f"{key}.npy"
            with file.open("wb") as stream:
                np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
                stream.flush()
                os.fsync(stream.fileno())
            checksums[file.name] = sha256(file)
        (draft / MANIFEST).write_text(json.dumps({"sha256": checksums}, indent=2) + "\n", encoding="utf-8")
        final = root / name
        if final.exists():
            shutil.rmtree(final)
        draft.rename(final)


def recall(name: str) -> dict[str, np.ndarray] | None:
    """The arrays of a stored data set, memory-mapped, or None if it is absent or damaged."""
    directory = cache_directory() / name
    try:
        checksums = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["sha256"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError):
        _warn(directory, MANIFEST)
        return None
    arrays = {}
    for file, expected in checksums.items():
        if not (directory / file).is_file() or sha256(directory / file) != expected:
            _warn(directory, file)
            return None
        # Copy-on-write: the file is shared between processes and never changed.
        arrays[file.removesuffix(".npy")] = np.load(directory / file, mmap_mode="c", allow_pickle=False)
    return arrays


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _warn(directory: Path, file: str) -> None:
    warnings.warn(f"{directory / file} is damaged; the cached copy of {directory.name} is not used", stacklevel=3)
