"""What the command line shows of runs that are there: a page, a live page, figures, and a diagnosis before any run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from isfl.report.reading import FoundRun

from isfl.cli_data import Overrides

Runs = Annotated[
    list[Path],
    typer.Argument(help="run directories, or directories that hold some", show_default=False),
]


def add_to(app: typer.Typer) -> None:
    """Make these commands of the application."""
    for command in (report, watch, figures, diagnose):
        app.command()(command)


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="the page to write")] = Path("report.html"),
) -> None:
    """One self-contained page that shows a run, or several side by side."""
    from isfl.report.page import write_report
    from isfl.terminal import say

    found, refused = write_report(runs, out)
    _tell_problems(found, refused)
    say(f"{len(found)} {'run' if len(found) == 1 else 'runs'} in {out} ({out.stat().st_size / 1e6:.1f} MB)")


def watch(
    runs: Runs,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free")] = 0,
    open_: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """The same page, live, on this machine, while runs go on and after they have ended."""
    import webbrowser

    from isfl.report.live import Viewer, follow, served
    from isfl.terminal import run_progress, say

    viewer = Viewer(runs)
    with served(viewer, port) as address:
        say(f"live at {address} (Ctrl-C ends it, not the run)")
        if open_:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):
            if len(viewer.runs) == 1:
                (run,) = viewer.runs
                with run_progress(f"{run.label} · {run.name}", run.rounds or 0) as on_round:
                    follow(viewer, on_round)
                say("finished; the page stays until Ctrl-C")
            threading.Event().wait()


def _tell_problems(found: Sequence[FoundRun], refused: Sequence[str]) -> None:
    """A line for everything that is not shown, or not whole."""
    from isfl.terminal import say

    for line in [*refused, *(f"{run.path}: {problem}" for run in found for problem in run.problems)]:
        say(f"note: {line}")


def figures(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="directory for the figures")] = Path("figures"),
) -> None:
    """The paper's figures of these runs, as PDF and PNG."""
    from isfl.report.figures import write_figures
    from isfl.report.reading import find_runs
    from isfl.terminal import say

    found, refused = find_runs(runs)
    _tell_problems(found, refused)
    written, missing = write_figures(found, out)
    for name, reason in missing.items():
        say(f"not drawn: {name} ({reason})")
    say(f"written to {out}: {', '.join(written)}, each as .pdf and .png")


def diagnose(
    counts: Annotated[
        Path, typer.Argument(help="CSV of class counts (clients x classes), or a configuration", show_default=False)
    ],
    target: Annotated[
        str | None, typer.Option(help="global, uniform, or one share a class: 0.5,0.3,0.2", show_default="global")
    ] = None,
    floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="ISFL draws a class at q_i >= floor * p^k_i", show_default="0.05")
    ] = None,
    target_floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="and at q_i >= target_floor * p_i", show_default="0")
    ] = None,
    lipschitz: Annotated[
        str | None,
        typer.Option(help="L: one value a class (1,2,0.5), or a CSV with one row or one a client", show_default="flat"),
    ] = None,
    overrides: Overrides = None,
    picture: Annotated[Path | None, typer.Option(help="draw it too (.png, .pdf, .svg)", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result for programs instead")] = False,
) -> None:
    """Should I bother? What label skew costs here and what importance sampling promises."""
    import json

    from isfl.diagnose.diagnosis import diagnose as look_at
    from isfl.diagnose.input import Options, question_from
    from isfl.diagnose.serialise import plain
    from isfl.diagnose.tables import tables
    from isfl.diagnose.text import five_lines, next_step
    from isfl.terminal import print_table, say

    options = Options(overrides or (), target, floor, target_floor, lipschitz)
    diagnosis = look_at(*question_from(counts, options))
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
