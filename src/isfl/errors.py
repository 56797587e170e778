"""Errors and warnings for the user, one line each.

Anything a user can cause (a wrong key, a missing file, an impossible split) is raised as a `UserError` with one line
that names the key or file and what would be right. The command line prints that line and exits with code 2. If the
user's own code raises, the user's part of the traceback is printed above the line. Every other exception is a bug of
ours and keeps its full traceback.
"""

from __future__ import annotations

import errno
import sys
import sysconfig
import traceback
import warnings
from pathlib import Path
from typing import TextIO

_PACKAGE = Path(__file__).parent
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
_INSTALLED = {"site-packages", "dist-packages"}

_NO_ROOM = (
    *("not enough memory", "can't allocate memory", "Cannot allocate memory", "out of memory", "new thread"),
    *("unable to resize file", "unable to mmap"),  # shared memory
    *("could not create a primitive", "could not create a memory"),  # oneDNN, behind torch's convolutions
)
"""Words of torch and Python for too little memory."""
_TOO_LITTLE_MEMORY = (
    "not enough memory ({}); use fewer --jobs or a smaller training.batch_size; isfl resume continues a run that began"
)


class UserError(ValueError):
    """A mistake in the input, described in one line: where, what was found, what would be right."""


class UserCodeError(UserError):
    """An exception in the user's own code; `traceback` is the formatted traceback without frames of this package."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class InterruptionError(Exception):
    """Ctrl-C, with a message that says how to resume."""


def as_user_error(error: Exception) -> UserError | None:
    """Return the error to show to the user; None if only code of ours and of libraries is involved: a bug of ours."""
    if isinstance(error, UserError):
        return error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _of_user(frame)]
    if not frames:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            return UserError(f"{str(error.filename)[:60]}…: the name is too long for a file")
        return UserError(_TOO_LITTLE_MEMORY.format(summary(error))) if _lacks_memory(error) else None
    place = f"{frames[-1].filename}:{frames[-1].lineno}"
    mistake = UserCodeError(f"{place}: your code raised {summary(error)}", user_traceback(error))
    mistake.__cause__ = error
    return mistake


def _lacks_memory(error: Exception) -> bool:
    """Return whether the system refused memory: torch says so in words, others in their own ways."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(w in str(error) for w in _NO_ROOM)
    )


def user_traceback(error: BaseException) -> str:
    """Format a traceback from the first frame of the user's code on, without frames of this package.

    If the user's function comes from an installed library, all frames but ours are kept. The result is empty if no
    frame is left.
    """
    whole = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = whole
    while part is not None:
        part.stack = _without_ours(part.stack)
        part = part.__cause__ or part.__context__
    return "".join(whole.format()) if whole.stack or isinstance(error, SyntaxError) else ""


def summary(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _without_ours(stack: traceback.StackSummary) -> traceback.StackSummary:
    frames = [frame for frame in stack if not _of_package(frame) and not _of_import_system(frame)]
    first = next((i for i, frame in enumerate(frames) if _of_user(frame)), 0)
    return traceback.StackSummary.from_list(frames[first:])


def _of_package(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(_PACKAGE)


def _of_import_system(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith("<frozen importlib") or Path(frame.filename).parent.name == "importlib"


def _of_user(frame: traceback.FrameSummary) -> bool:
    """Return whether a frame is neither ours, nor of an installed library, nor of generated code."""
    file = Path(frame.filename)
    installed = file.is_relative_to(_STANDARD_LIBRARY) or not _INSTALLED.isdisjoint(file.parts)
    return not (installed or _of_package(frame) or frame.filename.startswith("<"))


def plain_warnings() -> None:
    """Make this process print each warning once, as one line without a place in our code.

    It changes the whole process: only the command line and worker processes call it.
    """
    shown: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print(f"warning: {message}", file=sys.stderr)

    warnings.showwarning = show
