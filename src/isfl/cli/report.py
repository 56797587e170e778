"""Commands that show existing runs: `isfl report`, `isfl watch`, `isfl figures`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isfl import layout

if TYPE_CHECKING:
    from isfl.report.reading import FoundRun

Runs = Annotated[
    list[Path],
    typer.Argument(help="run directories, or directories that contain them", show_default=False),
]


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="the page to write")] = Path(layout.REPORT),
) -> None:
    """Write one self-contained page that shows a run, or several side by side."""
    from isfl.cli.terminal import say
    from isfl.report.page import write_report

    found, refused = write_report(runs, out)
    _print_problems(found, refused)
    say(f"{len(found)} {'run' if len(found) == 1 else 'runs'} in {out} ({out.stat().st_size / 1e6:.1f} MB)")


def watch(
    runs: Runs,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of the page; 0: any free port")] = 0,
    open_: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Serve the same page on this machine and keep it up to date while the runs continue."""
    import webbrowser

    from isfl.cli.terminal import run_progress, say
    from isfl.report.live import Viewer, follow, served

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
            while True:
                time.sleep(1.0)  # bounded: an endless wait can miss a Ctrl-C that arrives just before it


def _print_problems(found: Sequence[FoundRun], refused: Sequence[str]) -> None:
    """Print one line for every run that is left out or incomplete."""
    from isfl.cli.terminal import say

    for line in [*refused, *(f"{run.path}: {problem}" for run in found for problem in run.problems)]:
        say(f"note: {line}")


def figures(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="directory for the figures")] = Path("figures"),
) -> None:
    """Draw the paper's figures for these runs, as PDF and PNG."""
    from isfl.cli.terminal import say
    from isfl.report.figures import write_figures
    from isfl.report.reading import find_runs

    found, refused = find_runs(runs)
    _print_problems(found, refused)
    written, missing = write_figures(found, out)
    for name, reason in missing.items():
        say(f"not drawn: {name} ({reason})")
    say(f"written to {out}: {', '.join(written)}, each as .pdf and .png")
