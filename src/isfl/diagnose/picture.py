"""A diagnosis as a picture: label shares per client, the drivers of the skew, and rho by scheme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isfl.diagnose.diagnosis import ADVISED, ISFL, MINIMUM, Diagnosis
from isfl.diagnose.tables import shortened
from isfl.plotting import COLOURS, save, tidy
from isfl.theory.arrays import Array

MOST_CLIENTS, MOST_CLASSES = 30, 100
MOST_NAMES = 30
"""With more classes, only some names are shown."""
MOST_NUMBERS = 300
"""With more cells, the heat map shows no numbers."""
BARS = {
    "fedavg": "FedAvg",
    "uniform-is": "Uniform-IS",
    ISFL: "ISFL",
    ADVISED: "ISFL, advised",
    MINIMUM: "least possible",
}
HATCHES = ("", "//", "xx", "..", "--")
GREY = "#bbbbbb"


def draw_diagnosis(diagnosis: Diagnosis, out: Path) -> Path:
    """Draw the heat map with the drivers at its sides, and `rho` by scheme; return `out`."""
    clients = _most(diagnosis.drivers.clients, MOST_CLIENTS)
    classes = _most(diagnosis.drivers.classes, MOST_CLASSES)
    height = 4.4 + 0.22 * len(clients)
    figure = Figure(figsize=(13, height), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=[4, 1.3, 2.6], height_ratios=[1.2, height - 2.2])
    heat = figure.add_subplot(grid[1, 0])
    _draw_shares(heat, diagnosis, clients, classes)
    _draw_classes(figure.add_subplot(grid[0, 0], sharex=heat), diagnosis.drivers.classes[classes])
    _draw_clients(figure.add_subplot(grid[1, 1], sharey=heat), diagnosis.drivers.clients[clients])
    _draw_rho(figure.add_subplot(grid[:, 2]), diagnosis)
    return save(figure, out, resolution=200)


def _most(shares: Array, count: int) -> np.ndarray:
    """Return the indices of the `count` largest shares, in ascending order."""
    return np.sort(np.argsort(-shares, kind="stable")[:count])


def _draw_shares(axis: Axes, diagnosis: Diagnosis, clients: np.ndarray, classes: np.ndarray) -> None:
    federation = diagnosis.federation
    shares = 100 * federation.counts / federation.counts.sum(axis=1, keepdims=True)
    shown = shares[np.ix_(clients, classes)]
    axis.imshow(shown, cmap="Greys", vmin=0, vmax=100, aspect="auto")
    if shown.size <= MOST_NUMBERS:
        for (k, i), share in np.ndenumerate(shown):
            held = federation.counts[clients[k], classes[i]] > 0
            text = "<1" if held and share < 1 else f"{share:.0f}"
            axis.text(i, k, text, ha="center", va="center", fontsize=8, color="white" if share > 60 else "black")
    step = -(-len(classes) // MOST_NAMES)
    axis.set_xticks(range(0, len(classes), step), _names(federation.classes, classes[::step]), rotation=40, ha="right")
    axis.set_yticks(range(len(clients)), _names(federation.clients, clients))
    axis.set_xlabel(
        _cut("class: its share of a client's samples in %", len(classes), len(federation.classes), "classes")
    )
    axis.set_ylabel(_cut("client", len(clients), len(federation.clients), "clients"))


def _draw_classes(axis: Axes, shares: Array) -> None:
    bars = axis.bar(range(len(shares)), 100 * shares, color=GREY, edgecolor="black", linewidth=0.6)
    if len(shares) <= 12:
        axis.bar_label(bars, fmt=_percent, fontsize=8, padding=1)
    tidy(axis, "what drives the skew, in % of the whole", "", "")
    _bare(axis)
    axis.set_ylim(0, _room_for(shares))
    axis.tick_params(labelbottom=False)


def _draw_clients(axis: Axes, shares: Array) -> None:
    bars = axis.barh(range(len(shares)), 100 * shares, color=GREY, edgecolor="black", linewidth=0.6)
    axis.bar_label(bars, fmt=_percent, fontsize=8, padding=2)
    tidy(axis, "", "who drives it, in %", "")
    _bare(axis)
    axis.set_xlim(0, _room_for(shares))
    axis.tick_params(labelleft=False)


def _draw_rho(axis: Axes, diagnosis: Diagnosis) -> None:
    base = diagnosis.draws["fedavg"].rho
    values = [diagnosis.draws[name].rho / base for name in BARS]
    bars = axis.bar(range(len(BARS)), values, color=COLOURS[: len(BARS)], edgecolor="black", alpha=0.75)
    for bar, hatch in zip(bars, HATCHES, strict=True):
        bar.set_hatch(hatch)
    axis.bar_label(bars, fmt="%.2f", padding=2)
    axis.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    axis.set_xticks(range(len(BARS)), list(BARS.values()), rotation=40, ha="right")
    flat = "L flat" if diagnosis.question.lipschitz is None else "L as given"
    tidy(axis, f"theory: rho as a part of FedAvg's ({flat})", "", "")
    axis.grid(visible=False, axis="x")
    axis.margins(y=0.1)


def _bare(axis: Axes) -> None:
    axis.grid(visible=False)
    axis.tick_params(length=0)


def _percent(value: float) -> str:
    return f"{value:.0f}" if value >= 1 or value == 0 else f"{value:.1g}"


def _room_for(shares: Array) -> float:
    """Return an axis limit in percent that leaves room for the bars and their numbers."""
    return 125 * float(shares.max()) or 1.0


def _names(names: Sequence[str], chosen: np.ndarray) -> list[str]:
    return [shortened(names[i]).replace("$", r"\$") for i in chosen]  # a dollar begins a formula


def _cut(label: str, shown: int, there: int, things: str) -> str:
    return label if shown == there else f"{label} ({shown} of {there} {things}, the largest drivers)"
