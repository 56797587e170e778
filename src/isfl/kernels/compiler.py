"""Compile C once for the machine it runs on, and store the library in the user's cache."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from isfl.files import cache_directory, write_whole

FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC")
PATIENCE = 60.0
"""Seconds until the compiler is stopped; compiling takes one."""


def compiled(sources: Sequence[Path]) -> ctypes.CDLL | None:
    """Return the library of some C files, or None if there is no compiler, it fails, or there is no disk space."""
    compiler = _compiler()
    try:
        return None if compiler is None else _library(sources, compiler)
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None


def _library(sources: Sequence[Path], compiler: str) -> ctypes.CDLL:
    kept = cache_directory() / "compiled" / f"{_fingerprint(sources, compiler)}.so"
    if _ours(kept):
        with suppress(OSError):  # damaged: compiled again below
            return ctypes.CDLL(str(kept))
    with tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        fresh = Path(scratch) / kept.name
        command = [compiler, *FLAGS, *map(str, sources), "-o", str(fresh)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        with suppress(OSError):  # not stored: the next process compiles it again
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, fresh.read_bytes())
            return ctypes.CDLL(str(kept))  # execution may be forbidden in a temporary directory
        return ctypes.CDLL(str(fresh))


def _compiler() -> str | None:
    """Return the path of `CC`, or of the system's C compiler."""
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _fingerprint(sources: Sequence[Path], compiler: str) -> str:
    """Return a hash of everything the library depends on; different machines may share a home directory."""
    whole = hashlib.sha256()
    for source in sources:
        whole.update(source.read_bytes() + b"\0")
    program = Path(compiler).resolve()
    version = f"{program} {program.stat().st_size} {program.stat().st_mtime_ns}"
    for part in (version, *FLAGS, platform.machine(), _processor()):
        whole.update(part.encode() + b"\0")
    return whole.hexdigest()[:16]


def _processor() -> str:
    """Return the processor's model and features."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _ours(file: Path) -> bool:
    """Return whether the file exists and only this user could have written it, since it is going to be executed."""
    try:
        status = file.stat()
    except OSError:
        return False
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & stat.S_IWOTH
