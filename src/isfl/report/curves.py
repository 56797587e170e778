"""Lines over rounds: the mean over seeds and their range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from isfl.experiment import columns
from isfl.experiment.columns import Band, band_of
from isfl.plotting import over_rounds, styles_of
from isfl.report.reading import FoundRun
from isfl.theory.arrays import Array

Labelled = Mapping[str, Sequence[FoundRun]]
"""Label -> its runs, one per seed."""
MOST_MARKERS = 10


def series(run: FoundRun, key: str) -> Array:
    """Return a number of every round of a run; NaN where it was not measured."""
    return columns.series(run.lines, key)


def draw_band(axis: Axes, x: Array, band: Band, style: Mapping[str, Any], label: str) -> None:
    every = max(1, -(-len(x) // MOST_MARKERS))
    axis.plot(x, band.mean, label=label, markevery=every, **style)
    axis.fill_between(x, band.low, band.high, color=style["color"], alpha=0.15, linewidth=0)


def draw_curves(
    axis: Axes,
    runs: Labelled,
    metric: str,
    title: str,
    y: str,
    styles: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Draw a metric over rounds, one line per label. Accuracies are drawn in percent."""
    factor = 100.0 if metric.startswith("accuracy") else 1.0
    styles = styles or styles_of(runs)
    for label, own in runs.items():
        band = band_of([factor * series(run, metric) for run in own])
        if len(band.rounds):
            draw_band(axis, band.rounds, band, styles[label], label)
    if not axis.lines:
        axis.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axis.transAxes)
    over_rounds(axis, title, y)


def seeds_of(groups: Sequence[Labelled]) -> str:
    """Return what a line and its band are, for a legend."""
    numbers = [len(runs) for labelled in groups for runs in labelled.values()]
    low, high = min(numbers), max(numbers)
    if high == 1:
        return "one seed"
    return f"mean and range of {high} seeds" if low == high else f"mean and range of {low} to {high} seeds"
