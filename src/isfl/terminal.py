"""What a person sees while things run: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from isfl.experiment.compare import Cell

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


def accuracies(line: dict[str, Any]) -> str:
    return f"D_S {100 * line['accuracy_standard']:5.1f} %  D_G {100 * line['accuracy_global']:5.1f} %"


@contextmanager
def run_progress(title: str, rounds: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yields a function to call with the metrics of every finished round."""
    if not console.is_terminal:

        def plain(line: dict[str, Any]) -> None:
            loss = "-" if line["train_loss"] is None else f"{line['train_loss']:.4f}"
            seconds = line["seconds"]["wall"]
            console.print(f"round {line['round']:>3}/{rounds}  {accuracies(line)}  loss {loss}  {seconds:.1f} s")

        console.print(title, markup=False)
        yield plain
        return
    with _bars() as bars:
        task = bars.add_task(title, total=rounds, accuracies="")
        yield lambda line: bars.update(task, completed=line["round"], accuracies=accuracies(line))


@contextmanager
def cells_progress(cells: Sequence[Cell]) -> Iterator[Callable[[Sequence[Cell]], None]]:
    """Yields a function that looks at the cells' run directories and shows what is new."""
    totals = {cell.out: cell.config.training.rounds for cell in cells}
    if not console.is_terminal:
        told: set[str] = set()

        def plain(current: Sequence[Cell]) -> None:
            for cell in current:
                lines = cell.lines
                if len(lines) == totals[cell.out] and str(cell.out) not in told:
                    told.add(str(cell.out))
                    seconds = sum(line["seconds"]["wall"] for line in lines)
                    name = f"{cell.scheme} seed {cell.seed}"
                    console.print(
                        f"[{len(told)}/{len(cells)}] {name:<24} {accuracies(lines[-1])}  {seconds:.0f} s", markup=False
                    )

        yield plain
        return
    with _bars() as bars:
        tasks = {
            cell.out: bars.add_task(f"{cell.scheme} · seed {cell.seed}", total=totals[cell.out], accuracies="")
            for cell in cells
        }

        def update(current: Sequence[Cell]) -> None:
            for cell in current:
                if lines := cell.lines:
                    bars.update(tasks[cell.out], completed=len(lines), accuracies=accuracies(lines[-1]))

        yield update


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
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
        table.add_row(*row)
    console.print(table)


__all__ = ["cells_progress", "console", "errors", "print_table", "run_progress"]
