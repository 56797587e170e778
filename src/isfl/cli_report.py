"""What the command line shows of runs that are there: a page, a live page, figures, and a diagnosis before any run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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


def watch(run: Annotated[Path, typer.Argument(help="a run directory", show_default=False)]) -> None:
    """The same page, live, while a run goes on."""


def figures(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="directory for the figures")] = Path("figures"),
) -> None:
    """The paper's figures of these runs, as PDF and PNG."""
    from isfl.report.figures import write_figures
    from isfl.report.reading import find_runs
    from isfl.terminal import say

    found, refused = find_runs(runs)
    for problem in [*refused, *(f"{run.path}: {problem}" for run in found for problem in run.problems)]:
        say(f"note: {problem}")
    written, missing = write_figures(found, out)
    for name, reason in missing.items():
        say(f"not drawn: {name} ({reason})")
    say(f"written to {out}: {', '.join(written)}, each as .pdf and .png")


def diagnose(
    counts: Annotated[
        Path, typer.Argument(help="CSV of class counts (clients x classes), or a configuration", show_default=False)
    ],
) -> None:
    """Should I bother? What label skew costs here and what importance sampling promises."""
