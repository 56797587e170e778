"""A disk that is full: at every file operation, at every size of a file, and for real on a small file system."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import resource
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from campaigns.children import Ending, command
from campaigns.operations import FREEING, Operation, on_operation
from campaigns.reference import Reference, arguments_of, operations, places, reference, resumed
from campaigns.verdicts import Judged, Verdict

LARGEST = 60_000
"""Bytes; more than any file of the run."""
NEW_USER, NEW_MOUNTS, REMOUNT = 0x10000000, 0x00020000, 0x20
"""Flags of Linux's `unshare` and `mount`."""


def fails_at_operation(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Let one file operation, and all after it, fail as on a full disk; then make room and resume."""
    known, order = reference(scratch.parent), places(scratch.parent, need_room=True)
    place, kinds = order[number % len(order)], operations(known)

    def fail(count: int, operation: Operation) -> None:
        if count >= place and operation.name not in FREEING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    what = f"no space from file operation {place + 1} of {len(kinds)} ({kinds[place]}) on"
    return _judged(known, scratch / "run", what, lambda: on_operation(scratch, fail), jobs=1)


def limited_files(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Let the system cut every file at a random size: the write is short, the next one fails."""
    size, jobs = round(LARGEST ** chance.random()), chance.choice((1, 2))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    what = f"no file above {size} bytes, {jobs} jobs"
    return _judged(reference(scratch.parent), scratch / "run", what, limit, jobs)


def _judged(known: Reference, run: Path, what: str, fault: Callable[[], None], jobs: int) -> Judged:
    return after(known, run, command(arguments_of(known.config, run, jobs), fault), what, jobs)


def after(known: Reference, run: Path, ending: Ending, what: str, jobs: int = 1) -> Judged:
    """Resume, without the fault, what may have ended with one line; if it did not, the fault did not take place."""
    faults = int(ending.code != 0)
    if faults and ending.error_line is None:
        return Judged(Verdict.UNCLEAR, f"{what}: {ending}", faults)
    return replace(resumed(known, run, f"{what}: {ending.error_line or 'enough'}", jobs), faults=faults)


# ------------------------------------------------------------ a real full disk


def small_file_system(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Run on a file system of random size, in memory and visible to this try alone; enlarge it and resume."""
    known, size = reference(scratch.parent), chance.randint(4, 80) * 4096
    place, verdict = scratch / "disk", scratch / "verdict.txt"
    place.mkdir()
    child = os.fork()
    if child == 0:
        try:
            _mounted(place, size)
            full = command(arguments_of(known.config, place / "run", 1))
            _mounted(place, 1 << 26, REMOUNT)
            judged = after(known, place / "run", full, f"a disk of {size >> 10} kB")
            verdict.write_text(f"{judged.verdict.name} {judged.faults} {judged.what}", encoding="utf-8")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    name, faults, what = (verdict.read_text(encoding="utf-8") if verdict.exists() else "LOST 0 no word").split(" ", 2)
    return Judged(Verdict[name], what, int(faults))


def _mounted(place: Path, size: int, flags: int = 0) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if not flags:
        _check(library.unshare(NEW_USER | NEW_MOUNTS))
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
    options = f"size={size}".encode()
    _check(library.mount(b"tmpfs", str(place).encode(), b"tmpfs", flags, options))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def why_no_mount() -> str | None:
    """Return why a user cannot mount a file system of his own here; None if he can."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _mounted(Path(tempfile.gettempdir()), 4096)
            code = 0
        finally:
            os._exit(code)
    allowed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return None if allowed else "this system lets no user mount a file system"
