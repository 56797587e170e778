"""How a split came out: the skew card of a federation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from isfl.report.pictures import save
from isfl.theory import skew_card
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


def draw_split(counts: np.ndarray, class_names: Sequence[str], out: Path) -> Path:
    """Class counts of every client as a heat map with its numbers, where they fit."""
    size = (min(3 + 0.6 * counts.shape[1], 24), min(2 + 0.35 * len(counts), 24))
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    image = axis.imshow(counts, cmap="viridis", aspect="auto")
    if counts.size <= 400:
        for (k, i), count in np.ndenumerate(counts):
            colour = "black" if count > 0.6 * counts.max() else "white"
            axis.text(i, k, str(count), ha="center", va="center", fontsize=7, color=colour)
    if counts.shape[1] <= 30:
        axis.set_xticks(range(counts.shape[1]), class_names, rotation=45, ha="right")
    axis.set_xlabel("class")
    axis.set_ylabel("client")
    figure.colorbar(image, label="samples")
    return save(figure, out)
