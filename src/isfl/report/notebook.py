"""What a notebook shows of runs: a figure, and a small table with a picture as HTML that loads nothing."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from isfl.errors import UserError
from isfl.experiment import columns
from isfl.experiment.cells import Cell
from isfl.experiment.compare import summarise
from isfl.plotting import SCREEN, in_print, picture_of
from isfl.report.pictures import NotDrawnError, convergence
from isfl.report.reading import find_runs, read_run
from isfl.report.table import Table, accuracy_caption, accuracy_table, cost_caption, cost_table

RUN_HEADINGS = ("rounds", "D_S %", "D_G %", "worst client %", "training loss", "extra %", "seconds")
RUN_CAPTION = (
    "Last evaluated round. D_S: balanced test set; D_G: all clients' data; worst client: on its own data; extra: "
    "gradients for sampling per gradient for training; seconds: training and sampling, one core."
)


def plot_of(directory: Path) -> Figure:
    """Draw accuracies and training loss over rounds of the runs in a directory."""
    found, _ = find_runs([directory])
    with in_print():
        try:
            return convergence(found)
        except NotDrawnError as reason:
            raise UserError(f"{directory}: nothing to draw yet ({reason})") from None


def html_of_run(title: str, directory: Path) -> str:
    """Return a run as HTML: the numbers of its last round and its curves."""
    run = read_run(directory)
    percent = [
        100 * columns.last(run.lines, key) for key in ("accuracy_standard", "accuracy_global", "worst_client_accuracy")
    ]
    row = [
        f"{len(run.lines)} of {run.rounds}",
        *(_number(value, 1) for value in percent),
        _number(columns.last(run.lines, "train_loss"), 4),
        _number(columns.extra_gradients([run.lines]), 0),
        _number(columns.mean_seconds([run.lines]), 1),
    ]
    return _page(title, [((RUN_HEADINGS, [tuple(row)]), RUN_CAPTION)], directory)


def html_of_comparison(title: str, directory: Path, cells: Sequence[Cell]) -> str:
    """Return a comparison as HTML: its table and its curves; how far each run is while it is unfinished."""
    if all(cell.finished for cell in cells):
        rows = summarise(cells)
        tables = [(accuracy_table(rows), accuracy_caption(rows)), (cost_table(rows), cost_caption(rows))]
        return _page(title, tables, directory)
    states: list[tuple[str, ...]] = [
        (cell.name, f"{len(cell.lines)} of {cell.config.training.rounds}") for cell in cells
    ]
    return _page(title, [((("run", "rounds"), states), "Unfinished: isfl.resume runs the rest.")], directory)


def _page(title: str, tables: Sequence[tuple[Table, str]], directory: Path) -> str:
    """Return tables with a note below each, and the curves."""
    shown = "".join(f"{_table(*table)}<p><small>{html.escape(note)}</small></p>" for table, note in tables)
    return f"<div><p><code>{html.escape(title)}</code></p>{shown}{_picture(directory)}</div>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _picture(directory: Path) -> str:
    try:
        content = picture_of(plot_of(directory), "png", SCREEN)
    except UserError:  # no round is finished yet
        return ""
    encoded = base64.b64encode(content).decode()
    return f'<img alt="accuracies and training loss over rounds" src="data:image/png;base64,{encoded}">'


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"
