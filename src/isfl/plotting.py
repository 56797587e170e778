"""The style of all figures: sizes of a two-column journal, embedded fonts, readable without colour."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from isfl.errors import UserError
from isfl.files import write_whole

COLUMN, PAGE = 3.5, 7.16
"""Inches: the width of a column and of a page."""
# Colour-blind safe (Okabe and Ito, Tol); marker and dashes tell lines apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933", "#882255", "#88CCEE")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)), (0, (8, 2)))
PRINT: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,  # whole TrueType fonts: journals refuse the outlines of type 3
}
RESOLUTION, SCREEN = 300, 90
"""Dots per inch, in print and in a notebook."""


class Picture(Figure):
    """A figure that notebooks show by itself; matplotlib's own is shown only after pyplot was imported."""

    def _repr_png_(self) -> bytes:
        return picture_of(self, "png", SCREEN)


def in_print() -> AbstractContextManager[None]:
    """Return the context in which figures for print are drawn and saved."""
    return matplotlib.rc_context(PRINT)  # type: ignore[arg-type]  # its keys are literals


def sheet(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Picture, np.ndarray]:
    """Return a figure with a grid of axes, made without pyplot, which would keep it in memory."""
    figure = Picture(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def styles_of(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return one line style per label; ten differ by marker, seventy by marker and dashes."""
    return {
        label: {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": DASHES[i % len(DASHES)],
        }
        for i, label in enumerate(dict.fromkeys(labels))
    }


def tidy(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(title)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def over_rounds(axis: Axes, title: str, y: str) -> None:
    tidy(axis, title, "round", y)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def plain(text: str) -> str:
    """Escape a name so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")


def legend_below(figure: Figure, title: str | None = None) -> None:
    """Draw one legend for all axes: every label once, in as many columns as fit."""
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    points = 42 + 4.2 * max(len(label) for label in entries)  # a line, a gap and letters of seven points
    columns = max(1, min(len(entries), int(figure.get_figwidth() * 72 / points)))
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        title=title,
        handlelength=3.2,
    )


def save(figure: Figure, out: Path, resolution: int = 150) -> Path:
    """Write the figure atomically, in the format of the file name's suffix; return `out`."""
    try:
        write_whole(out, picture_of(figure, out.suffix.removeprefix(".") or "png", resolution))
    except (OSError, ValueError) as error:
        raise UserError(f"{out}: the picture cannot be written ({error})") from None
    return out


def picture_of(figure: Figure, kind: str, resolution: int = RESOLUTION) -> bytes:
    """Return the figure as `png` or `pdf`; the same figure gives the same bytes."""
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=resolution, metadata={"CreationDate": None} if kind == "pdf" else None)
    return content.getvalue()
