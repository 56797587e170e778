"""Compile C once for the machine it runs on, and keep the library in the user's cache."""

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
PATIENCE = 600.0
"""Seconds; compiling takes five, but on a busy machine it may wait. Giving up changes the bits of a run."""
NAMES = ("cc", "gcc", "clang")


class CompilerError(Exception):
    """Why C cannot be compiled on this machine, in one line."""


def compiled(sources: Sequence[Path]) -> ctypes.CDLL:
    """Return the library of some C files; raise a `CompilerError` if it cannot be compiled or loaded.

    Headers among the files are part of the fingerprint only.
    """
    compiler = compiler_path()
    if compiler is None:
        raise CompilerError(f"no C compiler found (tried $CC, {', '.join(NAMES)})")
    try:
        return _library(sources, compiler)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {error.returncode}")
        raise CompilerError(f"{compiler} failed ({last})") from error
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise CompilerError(f"{compiler}: the library cannot be built or loaded ({error})") from error


def _library(sources: Sequence[Path], compiler: str) -> ctypes.CDLL:
    kept = cache_directory() / "compiled" / f"{_fingerprint(sources, compiler)}.so"
    known = kept.with_suffix(".sha256")
    if _ours(kept) and _ours(known) and _sha256(kept) == known.read_text(encoding="ascii", errors="replace"):
        with suppress(OSError):  # compiled again below
            return ctypes.CDLL(str(kept))
    with tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        fresh = Path(scratch) / kept.name
        command = [compiler, *FLAGS, *(str(source) for source in sources if source.suffix == ".c"), "-o", str(fresh)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        with suppress(OSError):  # not kept: the next process compiles it again
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(known, _sha256(fresh).encode())
            write_whole(kept, fresh.read_bytes())
            return ctypes.CDLL(str(kept))  # in a temporary directory, nothing may be allowed to be executed
        return ctypes.CDLL(str(fresh))


def _sha256(file: Path) -> str:
    """Return the checksum of a file: a library with one wrong bit may load, and compute or crash."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def compiler_path() -> str | None:
    """Return the path of the C compiler: `CC`, or the first of `NAMES` that is installed."""
    names = (os.environ.get("CC"), *NAMES)
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _fingerprint(sources: Sequence[Path], compiler: str) -> str:
    """Return a digest of everything the library depends on; machines may share a home directory."""
    whole = hashlib.sha256()
    for source in sources:
        whole.update(source.read_bytes() + b"\0")
    program = Path(compiler).resolve()
    version = f"{program} {program.stat().st_size} {program.stat().st_mtime_ns}"
    for part in (version, *FLAGS, platform.machine(), _processor()):
        whole.update(part.encode() + b"\0")
    return whole.hexdigest()[:16]


def _processor() -> str:
    """Return the processor's name and instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _ours(file: Path) -> bool:
    """Return whether the file exists and only this user or root could have written it: it will be executed."""
    try:
        status = file.stat()
    except OSError:
        return False
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & stat.S_IWOTH
