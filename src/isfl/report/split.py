"""Figures of the split: class counts per client, alone or beside the accuracy curves."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from isfl.diagnose.heatmap import draw_counts
from isfl.plotting import COLUMN, PAGE, legend_below, sheet, styles_of
from isfl.report.curves import draw_curves, seeds_of
from isfl.report.pictures import PANELS, NotDrawnError, not_too_many
from isfl.report.reading import FoundRun, by_group


def federation(runs: Sequence[FoundRun]) -> Figure:
    """Draw class counts per client, one panel per setting: its first run with more than one client."""
    panels: dict[str, FoundRun] = {}
    for run in runs:
        if run.counts is not None and len(run.counts) > 1:
            panels.setdefault(run.group, run)
    if not panels:
        raise NotDrawnError("no run has the class counts of its clients")
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
    """Draw one row per setting: class counts, accuracy on `D_S` and `D_G`, and training loss over rounds."""
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
            for tick in row[0].get_xticklabels():
                tick.set(rotation=0, ha="center")
            figure.colorbar(image, ax=row[0], label="samples")
        else:
            row[0].text(0.5, 0.5, "private", ha="center", va="center", transform=row[0].transAxes)
        row[0].set_title(", ".join(part for part in (group, "local data") if part))
        for axis, (metric, title) in zip(row[1:], PANELS.items(), strict=True):
            draw_curves(axis, labelled, metric, group, title, styles)
    legend_below(figure, seeds_of(list(groups.values())))
    return figure
