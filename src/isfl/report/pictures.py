"""Figures of runs over their rounds: convergence, `rho`, `q` and cost.

Each function takes runs as they were found and returns a figure, or says why there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, ScalarFormatter

from isfl.experiment import columns
from isfl.experiment.columns import band_of
from isfl.plotting import COLUMN, PAGE, legend_below, over_rounds, sheet, styles_of, tidy
from isfl.report.curves import MOST_MARKERS, draw_band, draw_curves, seeds_of, series
from isfl.report.reading import FoundRun, by_group
from isfl.theory import skew_card
from isfl.theory.arrays import Array

MOST_CLASSES = 10
MOST_PANELS = 24
"""Limit for one figure; more could not be read on any page."""
PANELS = {
    "accuracy_standard": "accuracy on $D_S$ in %",
    "accuracy_global": "accuracy on $D_G$ in %",
    "train_loss": "training loss",
}
RHO = {"rho_used": "in use", "rho_paper": "the paper's rule", "rho_minimum": "theoretical minimum"}


class NotDrawnError(Exception):
    """These runs do not have what a figure shows; the message says what is missing."""


def not_too_many(panels: int, what: str) -> None:
    if panels > MOST_PANELS:
        raise NotDrawnError(f"{panels} {what} are too many for one figure; give fewer runs")


def convergence(runs: Sequence[FoundRun]) -> Figure:
    """Draw accuracy on `D_S` and `D_G` and training loss over rounds, one row of panels per setting."""
    groups = by_group(runs)
    if not any(np.isfinite(series(run, metric)).any() for run in runs for metric in PANELS):
        raise NotDrawnError("no run has a round with an accuracy or a loss yet")
    not_too_many(len(groups), "settings")
    styles = styles_of(label for labelled in groups.values() for label in labelled)
    figure, axes = sheet(len(groups), len(PANELS), PAGE, 0.5 + 1.9 * len(groups))
    for row, (group, labelled) in zip(axes, groups.items(), strict=True):
        for axis, (metric, title) in zip(row, PANELS.items(), strict=True):
            draw_curves(axis, labelled, metric, group, title, styles)
    legend_below(figure, seeds_of(list(groups.values())))
    return figure


CROSS = {
    ("cifar10", "accuracy_standard"): ("CIFAR-10", "accuracy on $D_S$ in %"),
    ("cifar100", "accuracy_standard"): ("CIFAR-100", "top-1 accuracy on $D_S$ in %"),
    ("cifar100", "accuracy_standard_top5"): ("CIFAR-100", "top-5 accuracy on $D_S$ in %"),
}
"""Group and metric -> title and vertical axis of a panel."""


def cross(runs: Sequence[FoundRun]) -> Figure:
    """Draw accuracy on `D_S` over rounds: CIFAR-10, CIFAR-100, and top-5 on CIFAR-100, one panel each."""
    groups = by_group(runs)
    if not any(group in groups for group, _ in CROSS):
        raise NotDrawnError("no run has a round on CIFAR-10 or CIFAR-100 yet")
    styles = styles_of(label for labelled in groups.values() for label in labelled)
    figure, axes = sheet(1, len(CROSS), PAGE, 2.4)
    for axis, ((group, metric), names) in zip(axes[0], CROSS.items(), strict=True):
        draw_curves(axis, groups.get(group, {}), metric, *names, styles)
    legend_below(figure, seeds_of(list(groups.values())))
    return figure


def rho(runs: Sequence[FoundRun]) -> Figure:
    """Draw `rho(q)`, mean over clients: in use, by the paper's rule, and its minimum; one panel per label."""
    bands, measured = {}, {}
    for group, labelled in by_group(runs).items():
        for label, own in labelled.items():
            found = {name: band_of([series(run, key) for run in own]) for key, name in RHO.items()}
            if any(len(band.rounds) for band in found.values()):
                title = f"{group}: {label}" if group else label
                bands[title], measured[title] = found, own
    if not bands:
        raise NotDrawnError(
            "no run measured Lipschitz values (schemes that sample by them do, or diagnostics.lipschitz)"
        )
    not_too_many(len(bands), "labels with rho")
    columns = min(len(bands), 3)
    rows = -(-len(bands) // columns)
    figure, axes = sheet(rows, columns, COLUMN if columns == 1 else PAGE, 0.5 + 1.9 * rows)
    styles = styles_of(RHO.values())
    for axis, (title, found) in zip(axes.flat, bands.items(), strict=False):
        for name, band in found.items():
            if len(band.rounds):
                draw_band(axis, band.rounds, band, styles[name], name)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(ScalarFormatter())
        axis.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
        over_rounds(axis, title, r"$\rho$, mean over clients")
    for axis in axes.flat[len(bands) :]:
        axis.remove()
    legend_below(figure, seeds_of([measured]))
    return figure


def probabilities(runs: Sequence[FoundRun]) -> Figure:
    """Draw `q^k_i` over rounds for the most and the least skewed client of every label that changes it (first seed)."""
    shown: dict[str, tuple[FoundRun, dict[str, Array]]] = {}
    for run in runs:
        drawn = drawn_by(run)
        if run.label not in shown and any(np.ptp(q, axis=0).max() > 1e-9 for q in drawn.values()):
            shown[run.label] = (run, drawn)
    if not shown:
        raise NotDrawnError("no run changes its sampling probabilities over rounds")
    not_too_many(len(shown), "labels with moving probabilities")
    figure, axes = sheet(len(shown), 2, PAGE, 0.7 + 1.7 * len(shown), sharey="row")
    classes, all_classes = _most_moved([drawn for _, drawn in shown.values()])
    styles = styles_of(map(str, classes))
    for row, (label, (run, drawn)) in zip(axes, shown.items(), strict=True):
        for axis, (client, word) in zip(row, _extremes(run, list(drawn)), strict=True):
            q = drawn[client]
            for i, style in zip(classes, styles.values(), strict=True):
                if i < q.shape[1]:
                    every = max(1, len(q) // MOST_MARKERS)
                    axis.plot(np.arange(1, len(q) + 1), q[:, i], label=_class_name(run, i), markevery=every, **style)
            over_rounds(axis, f"{label}, client {client}{word}", "")
        row[0].set_ylabel("probability $q^k_i$")
    few = len(classes) == all_classes
    legend_below(figure, "class" if few else f"class: the {len(classes)} of {all_classes} that move most")
    return figure


def drawn_by(run: FoundRun) -> dict[str, Array]:
    """Return client -> (T, C) probabilities, of the clients that have them in every round."""
    rows = [line.get("probabilities") for line in run.probabilities]
    tables = [row for row in rows if isinstance(row, dict)]
    found = {}
    for client in tables[0] if tables and len(tables) == len(rows) else []:
        try:
            q = np.array([table[client] for table in tables], dtype=np.float64)
        except (KeyError, TypeError, ValueError):
            continue
        if q.ndim == 2 and np.isfinite(q).all():
            found[client] = q
    return found


def _extremes(run: FoundRun, clients: list[str]) -> list[tuple[str, str]]:
    """Return the most and the least skewed client (total variation); the first and the last if labels are private."""
    if run.counts is not None:
        with suppress(ValueError, IndexError):  # counts that are none, or of other clients
            distance = skew_card(run.counts).total_variation
            ranked = sorted(clients, key=lambda k: -distance[int(k)])
            return [(ranked[0], " (most skewed)"), (ranked[-1], " (least skewed)")]
    return [(clients[0], ""), (clients[-1], "")]


def _most_moved(drawn: Sequence[dict[str, Array]]) -> tuple[list[int], int]:
    """Return the classes whose probabilities change most, at most `MOST_CLASSES`, and how many classes there are."""
    tables = [q for clients in drawn for q in clients.values()]
    moves = np.zeros(max(q.shape[1] for q in tables))
    for q in tables:
        moves[: q.shape[1]] += np.ptp(q, axis=0)
    return sorted(np.argsort(-moves, kind="stable")[:MOST_CLASSES].tolist()), len(moves)


def _class_name(run: FoundRun, i: int) -> str:
    return run.class_names[i] if i < len(run.class_names) else str(i)


def cost(runs: Sequence[FoundRun]) -> Figure:
    """Draw accuracy over the gradients spent on training and sampling, and the extra gradients of each label."""
    labelled: dict[str, list[FoundRun]] = {}
    for run in runs:
        if np.isfinite(columns.spent(run.lines)).any() and run.evaluated:
            labelled.setdefault(run.label, []).append(run)
    if not labelled:
        raise NotDrawnError("no run has an evaluated round with its gradient evaluations")
    not_too_many(len(labelled), "labels")
    styles = styles_of(labelled)
    height = max(2.4, 0.9 + 0.22 * len(labelled))
    figure, axes = sheet(1, 2, PAGE, height + 0.4, width_ratios=[1.6, 1])
    left, right = axes[0]
    for label, own in labelled.items():
        x, band = columns.cost_band([run.lines for run in own])
        draw_band(left, x, band, styles[label], label)
    tidy(left, "", "gradient evaluations, for training and sampling", PANELS["accuracy_standard"])
    left.ticklabel_format(axis="x", scilimits=(0, 0), useMathText=True)
    places = np.arange(len(labelled))[::-1]
    for place, (label, own) in zip(places, labelled.items(), strict=True):
        extra = columns.extra_gradients([run.lines for run in own])
        right.barh(place, extra, 0.6, color=styles[label]["color"], alpha=0.8)
        right.annotate(f"{extra:.0f}", (extra, place), (3, 0), textcoords="offset points", va="center", fontsize=7)
    right.set_yticks(places, list(labelled))
    right.margins(x=0.15)
    tidy(right, "", "extra gradients in % of training's", "")
    right.grid(False, axis="y")
    legend_below(figure, seeds_of([labelled]))
    return figure
