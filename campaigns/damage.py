"""Files that were cut, emptied, removed or changed by one bit, in run directories and in the cache."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np

from campaigns.children import command
from campaigns.reference import copied, reference, refused_or_same
from campaigns.verdicts import Judged, Verdict
from isfl import layout
from isfl.data.cache import recall, store
from isfl.kernels import library

WAYS = ("flip", "flip", "cut", "empty", "remove")
"""Of damage; one bit is the hardest to see."""


def damaged(file: Path, chance: random.Random) -> str:
    """Damage a file in a random way; return how."""
    way, content = chance.choice(WAYS), bytearray(file.read_bytes())
    if way == "remove" or not content:
        file.unlink()
        return f"{file.name} removed"
    if way == "flip":
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        content[place] ^= 1 << bit
        file.write_bytes(content)
        return f"{file.name}: bit {bit} of byte {place} flipped"
    length = 0 if way == "empty" else chance.randrange(len(content))
    file.write_bytes(content[:length])
    return f"{file.name} cut to {length} of {len(content)} bytes"


def run_directory(finished: bool, number: int, chance: random.Random, scratch: Path) -> Judged:
    """Damage one file of a stopped or finished run, each file in turn, and resume."""
    known = reference(scratch.parent)
    run = copied(known.whole if finished else known.stopped, scratch / "run")
    files = sorted(file for file in run.rglob("*") if file.is_file() and file.name != layout.LOCK)
    what = damaged(files[number % len(files)], chance)
    ending = command(["resume", str(run), "--jobs", "1"])
    return refused_or_same(known, run, ending, what)


def compiled_library(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Damage the compiled convolutions in the cache, and run."""
    known, cache = reference(scratch.parent), scratch / "cache"
    run = scratch / "run"

    def elsewhere() -> None:
        os.environ["ISFL_CACHE"] = str(cache)
        library._library.cache_clear()
        library.available()

    command(["--version"], elsewhere)
    files = sorted((cache / "compiled").glob("*")) if (cache / "compiled").is_dir() else []
    if not files:
        return Judged(Verdict.SAME, "no compiler on this machine", faults=0)
    what = damaged(chance.choice(files), chance)
    arguments = ["run", str(known.config), "--jobs", "1", "--out", str(run)]
    return refused_or_same(known, run, command(arguments, elsewhere), what)


def cached_data(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Damage a data set in the cache: what is recalled is whole, or nothing."""
    arrays: dict[str, np.ndarray] = {"inputs": np.arange(600, dtype=np.uint8).reshape(20, 30), "labels": np.arange(20)}
    before = os.environ.get("ISFL_CACHE")
    os.environ["ISFL_CACHE"] = str(scratch / "cache")
    try:
        store("images", arrays)
        what = damaged(chance.choice(sorted((scratch / "cache/images").iterdir())), chance)
        found = recall("images", list(arrays))
    finally:
        os.environ.pop("ISFL_CACHE") if before is None else os.environ.update(ISFL_CACHE=before)
    if found is None:
        return Judged(Verdict.REFUSED, what)
    same = all(np.array_equal(found[key], array) for key, array in arrays.items())
    return Judged(Verdict.SAME if same else Verdict.DIFFERENT, what)
