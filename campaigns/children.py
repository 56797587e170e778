"""The command line in forked processes: it starts in milliseconds, and a fault can be planted in it first."""

from __future__ import annotations

import faulthandler
import fcntl
import importlib
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from isfl.cli import main

for _name in ("cli.terminal", "experiment.cells", "experiment.run", "trackers.tracking", "kernels.library"):
    importlib.import_module(f"isfl.{_name}")  # once, and not in every forked process

HUNG_SECONDS = 90.0
"""A command that takes longer hangs; undisturbed ones take about a second."""

MOST_BYTES = 1 << 20
"""Of standard error."""


@dataclass(frozen=True)
class Ending:
    """How a command ended."""

    code: int
    """The exit code, or minus the number of the signal."""
    errors: str
    """What it wrote to standard error."""

    @property
    def error_line(self) -> str | None:
        """Return the one line of a clear refusal: exit code 2, one error, no traceback; else None."""
        lines = [line for line in self.errors.splitlines() if not line.startswith("warning: ")]
        clear = self.code == 2 and len(lines) == 1 and lines[0].startswith("error: ")
        return lines[0] if clear else None

    def __str__(self) -> str:
        return f"exit code {self.code}: {self.errors.strip()[-1500:]}"


class Child:
    """`isfl ARGUMENTS` in a forked process, a group of its own; `fault` is called in it first."""

    def __init__(self, arguments: Sequence[str], fault: Callable[[], None] | None = None) -> None:
        self._code: int | None = None
        self._reading, writing = os.pipe()  # not a file: the fault may be that files cannot be written
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, MOST_BYTES)
        self.pid = os.fork()
        if self.pid == 0:
            _become(arguments, writing, fault)
        os.close(writing)

    def running(self) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code is None

    @cached_property
    def _errors(self) -> bytes:
        """What it has written; workers that outlive it hold the pipe open, so there is no end to wait for."""
        os.set_blocking(self._reading, False)
        with os.fdopen(self._reading, "rb") as stream:
            return stream.read() or b""

    def kill(self) -> bool:
        """Send SIGKILL; return whether the process was still running."""
        alive = self.running()
        if alive:
            os.kill(self.pid, signal.SIGKILL)
        self.wait()
        return alive

    def workers(self) -> list[int]:
        """Return the process ids of its children."""
        with suppress(OSError):
            listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii")
            return [int(pid) for pid in listed.split()]
        return []

    def wait(self, seconds: float = HUNG_SECONDS) -> Ending:
        """Wait for the end; a process that hangs is killed with its group."""
        end = time.monotonic() + seconds
        while self.running():
            if time.monotonic() > end:
                os.killpg(self.pid, signal.SIGKILL)
            time.sleep(0.002)
        assert self._code is not None
        return Ending(self._code, self._errors.decode(errors="replace"))


def command(arguments: Sequence[str], fault: Callable[[], None] | None = None, seconds: float = HUNG_SECONDS) -> Ending:
    """Run `isfl ARGUMENTS` in a forked process to its end."""
    return Child(arguments, fault).wait(seconds)


def _become(arguments: Sequence[str], errors: int, fault: Callable[[], None] | None) -> NoReturn:
    """In the forked process: run the command line and exit as it does."""
    code: object = 1
    try:
        os.setpgid(0, 0)
        out = os.open(os.devnull, os.O_RDWR)
        for source, target in ((out, 0), (out, 1), (errors, 2)):
            os.dup2(source, target)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        warnings.resetwarnings()
        faulthandler.disable()  # a worker without memory may abort: its parent says so in one line
        if fault is not None:
            fault()
        main(arguments)
    except SystemExit as ending:
        code = ending.code
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)
