"""What speaks to the user: mistakes and warnings, one line each.

Anything a user can cause (a wrong key, a missing file, an impossible split) is raised as a
`UserError` with one line that names the key or file and what would be right. The command line
prints that line and exits with code 2. Every other exception is a bug of ours and keeps its traceback.
"""

import sys
import warnings
from typing import TextIO


class UserError(ValueError):
    """A mistake in the input, told in one line: where, what was found, what would be right."""


class InterruptionError(Exception):
    """Ctrl-C, with a word on how to go on."""


def plain_warnings() -> None:
    """Let this process print warnings as one line, once each, without the place in our code."""
    told: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if str(message) not in told:
            told.add(str(message))
            print(f"warning: {message}", file=sys.stderr)

    warnings.showwarning = show
