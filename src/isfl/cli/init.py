"""`isfl init`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from isfl.cli.completion import complete_data
from isfl.errors import UserError


def init(
    data: Annotated[
        str,
        typer.Argument(
            metavar="[DATASET|DIRECTORY]",
            help="a name of `isfl data list`, a directory of class folders, CSV or LEAF files, or an npz file",
            autocompletion=complete_data,
        ),
    ] = "fashion-mnist-mini",
    out: Annotated[Path, typer.Option("--out", "-o", help="the file to write")] = Path("experiment.toml"),
) -> None:
    """Inspect a data set and write a first configuration for it."""
    from isfl.cli.terminal import say
    from isfl.problem.proposal import propose

    if out.exists():
        raise UserError(f"{out}: exists; give another file with --out, or remove it")
    text = propose(data, out)
    try:
        with out.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except (OSError, UnicodeEncodeError) as error:
        raise UserError(f"{out}: cannot be written ({error})") from None
    say(f"written: {out}")
    say(f"next: isfl run {shlex.quote(str(out))}")
