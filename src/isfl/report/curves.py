"""Lines over rounds, readable without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from isfl.experiment.directory import read_lines

# Colour-blind safe (Okabe and Ito, Tol), and every line has a marker of its own.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933", "#882255", "#88CCEE")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")


def draw_curves(
    axis: Axes, runs: Mapping[str, Sequence[Path]], metric: str, title: str, label: str = "accuracy in %"
) -> None:
    """The mean of a metric over each scheme's runs, and their range."""
    factor = 100.0 if metric.startswith("accuracy") else 1.0
    for i, (scheme, paths) in enumerate(runs.items()):
        lines = [read_lines(path / "metrics.jsonl") for path in paths]
        rounds = np.array([line["round"] for line in lines[0]])
        values = factor * np.array([[line[metric] for line in run] for run in lines], dtype=float)
        measured = np.isfinite(values).any(axis=0)  # not every round need be evaluated
        rounds, values = rounds[measured], values[:, measured]
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        axis.plot(rounds, values.mean(axis=0), color=colour, marker=marker, ms=5, label=scheme)
        axis.fill_between(rounds, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.12, linewidth=0)
    seeds = max(len(paths) for paths in runs.values())
    tidy(axis, f"{title}: mean and range of {seeds} seeds" if seeds > 1 else title, "round", label)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def tidy(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(title)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
