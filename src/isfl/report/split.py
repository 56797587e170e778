"""How a split came out: the skew card of a federation, and who holds what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from isfl.report.curves import by_group, draw_curves, seeds_of
from isfl.report.pictures import PANELS, NotDrawnError, not_too_many
from isfl.report.reading import FoundRun
from isfl.report.style import COLUMN, PAGE, legend_below, plain, save, sheet, styles_of
from isfl.theory import skew_card
from isfl.theory.arrays import Array
from isfl.theory.drivers import skew_drivers

HEADINGS = ("client", "samples", "missing", "Hellinger", "variation", "effective", "skew %")
"""Classes it lacks, distances to the global mix, the samples that are left when it draws by the global mix, and its
part in the federation's skew."""
MOST_ROWS = 40
LONGEST_NAME = 20


def rows_of(counts: np.ndarray, clients: Sequence[str] | None = None) -> list[tuple[str, ...]]:
    """Each client of a (K, C) table, then the mean of all; long federations are cut."""
    card, drivers = skew_card(counts), skew_drivers(counts)
    shares = 100 * drivers.clients
    columns = (card.samples, card.missing, card.hellinger, card.total_variation, card.effective_size, shares)
    forms = ("{:.0f}", "{:.0f}", "{:.3f}", "{:.3f}", "{:.0f}", "{:.1f}")
    names = clients or range(len(counts))
    rows = [
        (shortened(str(names[k])), *(form.format(column[k]) for form, column in zip(forms, columns, strict=True)))
        for k in range(min(len(counts), MOST_ROWS))
    ]
    if len(counts) > MOST_ROWS:
        rows.append((f"... {len(counts) - MOST_ROWS} more", *("" for _ in columns)))
    mean = ("{:.0f}", "{:.1f}", "{:.3f}", "{:.3f}", "{:.0f}", "{:.1f}")
    return [*rows, ("mean", *(form.format(column.mean()) for form, column in zip(mean, columns, strict=True)))]


def shortened(name: str) -> str:
    """A name that fits a table."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def draw_counts(
    axis: Axes, counts: Array, class_names: Sequence[str], most: float, fontsize: float | None
) -> AxesImage:
    """Class counts of every client as a heat map up to `most`, with its numbers where they fit."""
    image = axis.imshow(counts, cmap="viridis", aspect="auto", vmin=0, vmax=most)  # darker is fewer, also in grey
    if fontsize is not None and counts.size <= 400:
        for (k, i), count in np.ndenumerate(counts):
            colour = "black" if count > 0.6 * most else "white"
            axis.text(i, k, f"{count:.0f}", ha="center", va="center", fontsize=fontsize, color=colour)
    if counts.shape[1] <= 30:
        axis.set_xticks(range(counts.shape[1]), class_names, rotation=45, ha="right")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("class")
    axis.set_ylabel("client")
    return image


def draw_split(counts: np.ndarray, class_names: Sequence[str], out: Path) -> Path:
    """The picture of `isfl data show`."""
    size = (min(3 + 0.6 * counts.shape[1], 24), min(2 + 0.35 * len(counts), 24))
    figure = Figure(figsize=size, layout="constrained")
    image = draw_counts(figure.subplots(), counts, [plain(name) for name in class_names], counts.max(), fontsize=7)
    figure.colorbar(image, label="samples")
    return save(figure, out)


def federation(runs: Sequence[FoundRun]) -> Figure:
    """Who holds what: a panel for every setting, of its first run with more than one client."""
    panels: dict[str, FoundRun] = {}
    for run in runs:
        if run.counts is not None and len(run.counts) > 1:
            panels.setdefault(run.group, run)
    if not panels:
        raise NotDrawnError("no run tells how many samples of which class its clients hold")
    not_too_many(len(panels), "settings")
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    tallest = max(len(run.counts) for run in panels.values() if run.counts is not None)
    figure, axes = sheet(rows, columns, COLUMN if columns == 1 else PAGE, rows * min(0.9 + 0.18 * tallest, 4.0))
    for axis, (group, run) in zip(axes.flat, panels.items(), strict=False):
        assert run.counts is not None
        image = draw_counts(axis, run.counts, run.class_names, run.counts.max(), fontsize=5)
        axis.set_title(", ".join(part for part in (group, f"seed {run.seed}") if part))
        figure.colorbar(image, ax=axis, label="samples")
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    return figure


def convergence_and_split(runs: Sequence[FoundRun]) -> Figure:
    """Per setting, one row: who holds what, accuracy on `D_S` and `D_G`, and training loss over rounds."""
    groups = by_group(runs)
    counted = {run.group: run for run in reversed(runs) if run.counts is not None and len(run.counts) > 1}
    if not groups:
        raise NotDrawnError("no run has a round yet")
    not_too_many(len(groups), "settings")
    styles = styles_of(label for labelled in groups.values() for label in labelled)
    figure, axes = sheet(len(groups), 1 + len(PANELS), PAGE, 0.5 + 2.0 * len(groups), width_ratios=[1.1, 1, 1, 1])
    for row, (group, labelled) in zip(axes, groups.items(), strict=True):
        if group in counted:
            run = counted[group]
            assert run.counts is not None
            numbers = [str(i) for i in range(run.counts.shape[1])]  # names have no room
            image = draw_counts(row[0], run.counts, numbers, run.counts.max(), fontsize=None)
            row[0].tick_params(axis="x", rotation=0)
            figure.colorbar(image, ax=row[0], label="samples")
        else:
            row[0].text(0.5, 0.5, "private", ha="center", va="center", transform=row[0].transAxes)
        row[0].set_title(", ".join(part for part in (group, "local data") if part))
        for axis, (metric, title) in zip(row[1:], PANELS.items(), strict=True):
            draw_curves(axis, labelled, metric, group, title, styles)
    legend_below(figure, seeds_of(list(groups.values())))
    return figure
