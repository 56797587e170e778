"""Files that were cut, emptied, removed or changed by one bit, in run directories and in the cache."""

from __future__ import annotations

import os
import random
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from campaigns.children import HUNG_SECONDS, command
from campaigns.operations import in_turn, kind_of_file
from campaigns.reference import copied, reference, refused_or_same
from campaigns.verdicts import Judged, Verdict
from isfl import layout
from isfl.data.cache import recall_or_store
from isfl.kernels import compiler, library

WAYS = ("flip", "cut", "empty", "remove", "flip")
"""Of damage; one bit is the hardest to see."""


def damaged(file: Path, way: str, chance: random.Random) -> str:
    """Damage a file; return how."""
    content = bytearray(file.read_bytes())
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


@cache
def cases(directory: Path) -> list[tuple[Path, str]]:
    """Return every file below the directory with every way to damage it, each kind of file and way in turn."""
    files = sorted(file.relative_to(directory) for file in directory.rglob("*") if file.is_file())
    found = [(file, way) for way in WAYS for file in files if file.name != layout.LOCK]
    return [found[turn] for turn in in_turn([f"{way} {kind_of_file(str(file))}" for file, way in found])]


def cases_of_run(finished: bool, scratch: Path) -> int:
    return len(cases(_run(finished, scratch)))


def _run(finished: bool, scratch: Path) -> Path:
    known = reference(scratch)
    return known.whole if finished else known.stopped


def run_directory(finished: bool, number: int, chance: random.Random, scratch: Path) -> Judged:
    """Damage one file of a stopped or finished run, and resume."""
    run, what = _damaged_copy(_run(finished, scratch.parent), scratch / "run", number, chance)
    ending = command(["resume", str(run), "--jobs", "1"])
    return replace(refused_or_same(reference(scratch.parent), run, ending, what), faults=1)


def _damaged_copy(source: Path, target: Path, number: int, chance: random.Random) -> tuple[Path, str]:
    """Copy a directory and damage one file of the copy; return the copy, and what was done."""
    file, way = cases(source)[number % len(cases(source))]
    return target, damaged(copied(source, target) / file, way, chance)


# ------------------------------------------------------------ the cache


@cache
def _cache_with_library(scratch: Path) -> Path:
    """Compile the convolutions into a cache of their own; without a compiler, it stays empty."""
    place = scratch / "cache-with-library"
    place.mkdir()
    command(["--version"], lambda: _use_cache(place), HUNG_SECONDS + compiler.PATIENCE)
    return place


def _use_cache(place: Path) -> None:
    os.environ["ISFL_CACHE"] = str(place)
    library._library.cache_clear()
    library.available()


def cases_of_library(scratch: Path) -> int:
    return len(cases(_cache_with_library(scratch)))


def why_no_library() -> str | None:
    return None if library.available() else "there is no C compiler on this machine"


def compiled_library(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Damage the compiled convolutions in the cache, and run."""
    known, run = reference(scratch.parent), scratch / "run"
    place, what = _damaged_copy(_cache_with_library(scratch.parent), scratch / "cache", number, chance)
    arguments = ["run", str(known.config), "--jobs", "1", "--out", str(run)]
    ending = command(arguments, lambda: _use_cache(place), HUNG_SECONDS + compiler.PATIENCE)
    return replace(refused_or_same(known, run, ending, what), faults=1)


def cached_data(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Damage a data set in the cache, and load it as a run does: it is fetched again."""
    arrays: dict[str, np.ndarray] = {"inputs": np.arange(600, dtype=np.uint8).reshape(20, 30), "labels": np.arange(20)}
    before = os.environ.get("ISFL_CACHE")
    try:
        os.environ["ISFL_CACHE"] = str(scratch / "whole")
        recall_or_store("images", list(arrays), lambda: arrays)
        place, what = _damaged_copy(scratch / "whole", scratch / "cache", number, chance)
        os.environ["ISFL_CACHE"] = str(place)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is damaged
            found = recall_or_store("images", list(arrays), lambda: arrays)
    finally:
        os.environ.pop("ISFL_CACHE") if before is None else os.environ.update(ISFL_CACHE=before)
    same = all(np.array_equal(found[key], array) for key, array in arrays.items())
    return Judged(Verdict.SAME if same else Verdict.DIFFERENT, what, faults=1)
