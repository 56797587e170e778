"""Progress and tables: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from isfl.experiment.cells import Cell

console = Console(highlight=False)

BLOCKS = "▁▂▃▄▅▆▇█"
LETTERS = "_.-:=+*#"
"""Used if the terminal's encoding has no blocks."""
BAR_SPARKS, LINE_SPARKS = 12, 40
"""Longest sparkline beside a bar and on a line of its own."""


def say(line: str) -> None:
    """Print a line without markup or wrapping, so that a path in it can be copied."""
    console.print(line, markup=False, soft_wrap=True)


def accuracies(line: dict[str, Any]) -> str:
    if line["accuracy_standard"] is None:
        return "not evaluated"
    held = line["accuracy_global"]
    return f"D_S {100 * line['accuracy_standard']:5.1f} %  D_G " + ("-" if held is None else f"{100 * held:5.1f} %")


def sparkline(values: Sequence[float], width: int, levels: str = BLOCKS) -> str:
    """Draw values as at most `width` letters from low to high; with more values, a letter is a mean of neighbours."""
    known = [value for value in values if math.isfinite(value)]
    count = min(len(known), width)
    edges = [i * len(known) // count for i in range(count + 1)] if count > 0 else [0]
    means = [sum(known[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    spread = high - low or 1.0  # equal values are all drawn low
    return "".join(levels[round((mean - low) / spread * (len(levels) - 1))] for mean in means)


class Curve:
    """The accuracy on D_S over the rounds that were evaluated."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def add(self, line: dict[str, Any]) -> None:
        if line["accuracy_standard"] is not None:
            self._values.append(line["accuracy_standard"])

    def drawn(self, width: int) -> str:
        try:
            BLOCKS.encode(console.encoding)
        except (UnicodeEncodeError, LookupError):
            return sparkline(self._values, width, LETTERS)
        return sparkline(self._values, width)

    def summary(self) -> str | None:
        """Return the closing line of a run; None for fewer than two evaluated rounds."""
        if len(self._values) < 2:
            return None
        first, last = 100 * self._values[0], 100 * self._values[-1]
        return f"D_S {self.drawn(LINE_SPARKS)} {first:.1f} to {last:.1f} %, best {100 * max(self._values):.1f} %"


def refusals(line: dict[str, Any]) -> list[str]:
    return [f"round {line['round']}: refused client {k}: {reason}" for k, reason in line["refused"].items()]


@contextmanager
def run_progress(title: str, rounds: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function to call with the metrics of every finished round."""
    curve = Curve()
    if not console.is_terminal:

        def plain(line: dict[str, Any]) -> None:
            curve.add(line)
            loss = "-" if line["train_loss"] is None else f"{line['train_loss']:.4f}"
            seconds = line["seconds"]["wall"]
            late = f"  {len(line['late'])} late" if line.get("late") else ""
            say(f"round {line['round']:>3}/{rounds}  {accuracies(line)}  loss {loss}  {seconds:.1f} s{late}")
            for refusal in refusals(line):
                say(refusal)

        say(title)
        yield plain
        if summary := curve.summary():
            say(summary)
        return
    with _bars() as bars:
        task = bars.add_task(title, total=rounds, accuracies="")

        def update(line: dict[str, Any]) -> None:
            curve.add(line)
            text = f"{accuracies(line)}  {curve.drawn(BAR_SPARKS)}"
            bars.update(task, completed=line["round"], accuracies=text)
            for refusal in refusals(line):
                say(refusal)

        yield update


@contextmanager
def cells_progress(cells: Sequence[Cell], jobs: int | None) -> Iterator[Callable[[Sequence[Cell]], None]]:
    """Yield a function that reads the cells' run directories and shows what is new.

    Finished cells are printed as lines, with the time that the rest will take; on a terminal, running cells are bars
    below them.
    """
    width = max(len(cell.name) for cell in cells)
    done: set[Path] = set()

    def finished(cell: Cell, lines: list[dict[str, Any]]) -> None:
        done.add(cell.out)
        seconds = sum(line["seconds"]["wall"] for line in lines)
        count = f"[{len(done)}/{len(cells)}]"
        left = f"  {_left(cells, jobs)}" if len(done) < len(cells) else ""
        count = f"{count:>{2 * len(str(len(cells))) + 3}}"
        say(f"{count} {cell.name:<{width}}  {accuracies(lines[-1])}  {seconds:.0f} s{left}")
        for refusal in [text for line in lines for text in refusals(line)][:3]:
            say(f"    {refusal}")

    if not console.is_terminal:

        def plain(current: Sequence[Cell]) -> None:
            for cell in current:
                if cell.out not in done and len(lines := cell.lines) == cell.config.training.rounds:
                    finished(cell, lines)

        yield plain
        return
    with _bars() as bars:
        whole = bars.add_task("all runs", total=sum(cell.config.training.rounds for cell in cells), accuracies="")
        tasks = {
            cell.out: bars.add_task(cell.name, total=cell.config.training.rounds, accuracies="", visible=False)
            for cell in cells
        }

        def update(current: Sequence[Cell]) -> None:
            rounds = 0
            for cell in current:
                lines = cell.lines if cell.out not in done else []
                rounds += cell.config.training.rounds if cell.out in done else len(lines)
                if lines and len(lines) == cell.config.training.rounds:
                    finished(cell, lines)
                    bars.update(tasks[cell.out], visible=False)
                elif lines:
                    bars.update(tasks[cell.out], completed=len(lines), accuracies=accuracies(lines[-1]), visible=True)
            bars.update(whole, completed=rounds, accuracies=_left(current, jobs))

        yield update


def _left(cells: Sequence[Cell], jobs: int | None) -> str:
    """Return the time that the rest will take; nothing before the first round is done and in the last minute."""
    from isfl.engines.local.worker_pool import cores
    from isfl.experiment.cells import seconds_left

    seconds = seconds_left(cells, jobs or cores())
    if seconds is None or seconds < 60:
        return ""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"about {hours} h {minutes:02} min left" if hours else f"about {minutes} min left"


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracies]}"),
        TimeElapsedColumn(),
        console=console,
    )


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str, caption: str) -> None:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
