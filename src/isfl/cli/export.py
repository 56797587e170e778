"""`isfl export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="directory of a finished run", show_default=False)],
    to: Annotated[
        Path,
        typer.Option(
            help=".pt (state_dict), .pt2 (torch.export), .csv or .parquet (metrics), .md (model card), or a directory "
            "for all of them",
            show_default=False,
        ),
    ],
) -> None:
    """Write a finished run for other programs: the model, the metrics, a model card."""
    from isfl.api import Run
    from isfl.cli.terminal import say

    for file in Run(run).export(to):
        say(f"written: {file}")
