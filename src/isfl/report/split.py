"""How a split came out: the skew card of a federation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from isfl.data import Dataset
from isfl.errors import UserError
from isfl.theory import skew_card

HEADINGS = ("client", "samples", "missing", "Hellinger", "variation", "effective")
"""Classes it lacks, distances to the global mix, and the samples that are left when it draws by the global mix."""
MOST_ROWS = 40


def rows_of(clients: Sequence[Dataset]) -> list[tuple[str, ...]]:
    """Each client, then the mean of all; long federations are cut."""
    card = skew_card(np.stack([data.class_counts for data in clients]))
    columns = (card.samples, card.missing, card.hellinger, card.total_variation, card.effective_size)
    forms = ("{:.0f}", "{:.0f}", "{:.3f}", "{:.3f}", "{:.0f}")
    rows = [
        (str(k), *(form.format(column[k]) for form, column in zip(forms, columns, strict=True)))
        for k in range(min(len(clients), MOST_ROWS))
    ]
    if len(clients) > MOST_ROWS:
        rows.append((f"... {len(clients) - MOST_ROWS} more", "", "", "", "", ""))
    mean = ("{:.0f}", "{:.1f}", "{:.3f}", "{:.3f}", "{:.0f}")
    return [*rows, ("mean", *(form.format(column.mean()) for form, column in zip(mean, columns, strict=True)))]


def draw_split(clients: Sequence[Dataset], class_names: Sequence[str], out: Path) -> Path:
    """Class counts of every client as a heat map with its numbers, where they fit."""
    counts = np.stack([data.class_counts for data in clients])
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
    try:
        figure.savefig(out, dpi=150)
    except (OSError, ValueError) as error:
        raise UserError(f"{out}: the picture cannot be written ({error})") from None
    finally:
        plt.close(figure)
    return out
