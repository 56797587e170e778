"""Names for shell completion: schemes, data sets, experiments. `isfl --install-completion` sets it up.

The modules that define the names take seconds to import, too long for a key press. So the names are kept in the cache,
with a stamp of the package's files: a name that was added is known at the next key press.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from isfl.files import cache_directory, write_whole

Names = dict[str, list[str]]
PACKAGE = Path(__file__).parent.parent
FILE = "completion.json"


def complete_schemes(incomplete: str) -> list[str]:
    """Complete the last of several scheme names between commas; none is offered twice."""
    *before, _ = incomplete.split(",")
    start = "".join(f"{name}," for name in before)
    names = [*_names()["schemes"], *([] if before else ["all"])]
    return [start + name for name in names if name not in before]


def complete_data(incomplete: str) -> list[str]:
    return _names()["data"]


def complete_experiments(incomplete: str) -> list[str]:
    return _names()["experiments"]


def one_of(*words: str) -> Callable[[], list[str]]:
    """Return a completion of these words."""
    return lambda: list(words)


def _names() -> Names:
    """Return all names, from the cache while no file of the package has changed."""
    stamp = _stamp()
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError):
        known = json.loads((cache_directory() / FILE).read_text(encoding="utf-8"))
        if known["stamp"] == stamp:
            names: Names = known["names"]
            return names
    names = _imported_names()
    with suppress(OSError, RuntimeError):  # without a home directory there is no cache
        cache_directory().mkdir(parents=True, exist_ok=True)
        write_whole(cache_directory() / FILE, json.dumps({"stamp": stamp, "names": names}).encode())
    return names


def _stamp() -> list[int | str]:
    times = [file.stat().st_mtime_ns for file in PACKAGE.rglob("*.py")]
    return [str(PACKAGE), len(times), max(times)]


def _imported_names() -> Names:
    from isfl.data import SOURCES
    from isfl.experiment.reproduce import EXPERIMENTS
    from isfl.federation.scheme import SHORTHANDS

    return {"schemes": list(SHORTHANDS), "data": list(SOURCES), "experiments": list(EXPERIMENTS)}
