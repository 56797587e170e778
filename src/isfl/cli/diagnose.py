"""`isfl diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isfl.cli.options import Overrides


def diagnose(
    counts: Annotated[
        Path, typer.Argument(help="CSV of class counts (clients x classes), or a configuration", show_default=False)
    ],
    target: Annotated[
        str | None, typer.Option(help="global, uniform, or one share per class: 0.5,0.3,0.2", show_default="global")
    ] = None,
    floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="ISFL draws a class at q_i >= floor * p^k_i", show_default="0.05")
    ] = None,
    target_floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="and at q_i >= target_floor * p_i", show_default="0")
    ] = None,
    lipschitz: Annotated[
        str | None,
        typer.Option(
            help="L: one value per class (1,2,0.5), or a CSV with one row, or one row per client", show_default="flat"
        ),
    ] = None,
    overrides: Overrides = None,
    picture: Annotated[Path | None, typer.Option(help="also draw it (.png, .pdf, .svg)", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead")] = False,
) -> None:
    """Should I bother? Measure the label skew and what importance sampling can gain."""
    import json

    from isfl.cli.terminal import print_table, say
    from isfl.diagnose.diagnosis import diagnose as diagnose_counts
    from isfl.diagnose.input import Options, question_from
    from isfl.diagnose.serialise import plain
    from isfl.diagnose.tables import tables
    from isfl.diagnose.text import five_lines, next_step

    options = Options(overrides or (), target, floor, target_floor, lipschitz)
    diagnosis = diagnose_counts(*question_from(counts, options))
    if picture is not None:
        from isfl.diagnose.picture import draw_diagnosis

        draw_diagnosis(diagnosis, picture)
    if as_json:
        typer.echo(json.dumps(plain(diagnosis), indent=2, allow_nan=False))
        return
    for line in five_lines(diagnosis):
        say(line)
    for note in diagnosis.federation.notes:
        say(f"note: {note}")
    for table in tables(diagnosis):
        print_table(table.headings, table.rows, table.title, table.caption)
    if (command := next_step(diagnosis, str(counts))) is not None:
        say(f"to test it: {command}")
    if picture is not None:
        say(f"picture: {picture}")
