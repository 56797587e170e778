"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isfl.cli.completion import one_of
from isfl.trackers import FILES

ConfigFile = Annotated[Path, typer.Argument(help="TOML configuration of the run", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="override a key, for instance --set training.rounds=10"),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="processes: runs at a time, or workers of a single run (default: one per core)"),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        help=f"report every round to a tracker: {', '.join(FILES)}, or module:function; repeatable",
        autocompletion=one_of(*FILES),
    ),
]
