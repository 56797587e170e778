"""The comparison with peers as bars: time, CPU time and memory of a round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

OURS, OTHERS = "#0072B2", "#999999"
PANELS = {
    "seconds a round": "seconds a round",
    "CPU seconds a round": "CPU seconds a round\n(all processes)",
    "peak memory in MB": "peak memory in MB\n(all processes)",
}


def draw(result: dict[str, Any], file: Path) -> None:
    rows = result["rows"]
    names = [row["contestant"] for row in rows]
    colours = [OURS if name.startswith("isfl") else OTHERS for name in names]
    figure = Figure(figsize=(10, 1.4 + 0.4 * len(rows)), layout="constrained")
    for axis, (key, label) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        values = [row[key] for row in rows]
        drawn = axis.barh(names, values, color=colours, height=0.65)
        axis.bar_label(drawn, [_short(value) for value in values], padding=3, fontsize=9)
        axis.set_xlim(0, 1.22 * max(values, default=1.0))
        axis.set_title(label, fontsize=10)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.set_xticks([])
        axis.tick_params(axis="y", length=0)
    figure.axes[0].invert_yaxis()  # the axes share it: once for all
    figure.suptitle(result["title"] + ". Shorter is better.", fontsize=11)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
