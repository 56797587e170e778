"""Class counts per client as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from isfl.plotting import plain, save
from isfl.theory.arrays import Array


def draw_counts(
    axis: Axes, counts: Array, class_names: Sequence[str], most: float, fontsize: float | None
) -> AxesImage:
    """Draw (K, C) counts on a colour scale from 0 to `most`, with numbers up to 400 cells if `fontsize` is given."""
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
    """Draw (K, C) counts as a picture of its own; return `out`."""
    size = (min(3 + 0.6 * counts.shape[1], 24), min(2 + 0.35 * len(counts), 24))
    figure = Figure(figsize=size, layout="constrained")
    image = draw_counts(figure.subplots(), counts, [plain(name) for name in class_names], counts.max(), fontsize=7)
    figure.colorbar(image, label="samples")
    return save(figure, out)
