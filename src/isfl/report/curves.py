"""Lines over rounds: the mean over seeds and their range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from isfl.plotting import over_rounds, styles_of
from isfl.report.reading import FoundRun
from isfl.theory.arrays import Array

Labelled = Mapping[str, Sequence[FoundRun]]
"""Label -> its runs, one a seed."""
MOST_MARKERS = 10


def by_group(runs: Sequence[FoundRun]) -> dict[str, dict[str, list[FoundRun]]]:
    """Group -> label -> runs, in the order they come; those without a single round are left out."""
    groups: dict[str, dict[str, list[FoundRun]]] = {}
    for run in runs:
        if run.lines:
            groups.setdefault(run.group, {}).setdefault(run.short_label, []).append(run)
    return groups


def series(run: FoundRun, key: str) -> Array:
    """A number of every round; `a.b` is `b` inside of `a`; NaN where it was not measured."""
    return np.array([_number(line, key) for line in run.lines], dtype=np.float64)


def _number(line: Mapping[str, Any], key: str) -> float:
    value: Any = line
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else np.nan


@dataclass(frozen=True)
class Band:
    """What several seeds show together, at the rounds in which at least one of them was measured."""

    rounds: Array
    mean: Array
    low: Array
    high: Array


def band_of(values: Sequence[Array]) -> Band:
    """Of one array of rounds a seed; a seed that is not as far yet counts in the rounds it has."""
    table = np.full((len(values), max(len(row) for row in values)), np.nan)
    for row, own in zip(table, values, strict=True):
        row[: len(own)] = own
    measured = np.flatnonzero(np.isfinite(table).any(axis=0))
    table = table[:, measured]
    mean, low, high = (how(table, axis=0) for how in (np.nanmean, np.nanmin, np.nanmax))
    return Band(np.asarray(measured + 1, dtype=np.float64), mean, low, high)


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
    """A metric over rounds, a line for every label. Accuracies are drawn in percent."""
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
    """What a line and its band are, for the reader of a legend."""
    numbers = [len(runs) for labelled in groups for runs in labelled.values()]
    low, high = min(numbers), max(numbers)
    if high == 1:
        return "one seed"
    return f"mean and range of {high} seeds" if low == high else f"mean and range of {low} to {high} seeds"
