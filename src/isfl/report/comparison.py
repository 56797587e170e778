"""The picture of a comparison: who holds what, what is drawn instead, and what that does to accuracy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import SubFigure

from isfl.experiment.directory import read_lines, told_when_full
from isfl.report.curves import draw_curves

MOST_CLIENTS = 40


def draw_comparison(runs: Mapping[str, Sequence[Path]], out: Path) -> Path:
    """`runs`: scheme -> its run directories, one a seed. Writes a PNG and returns its path."""
    figure = plt.figure(figsize=(12, 6.4), layout="constrained")
    halves = figure.subfigures(2, 1, height_ratios=[1, 1.15])
    assert isinstance(halves, np.ndarray)
    top, bottom = halves
    _draw_mixes(top, runs)
    left, right = bottom.subplots(1, 2)
    draw_curves(left, runs, "accuracy_standard", "balanced test set (D_S)")
    draw_curves(right, runs, "accuracy_global", "all clients' data (D_G)")
    left.legend(frameon=False, loc="lower right")
    with told_when_full(out.parent):
        figure.savefig(out, dpi=150)
    plt.close(figure)
    return out


def _draw_mixes(figure: SubFigure, runs: Mapping[str, Sequence[Path]]) -> None:
    """What clients hold, and what each importance-sampling scheme draws in its last round."""
    held = {scheme: _held_by(paths[0]) for scheme, paths in runs.items()}
    federated = [scheme for scheme in runs if len(held[scheme]) > 1] or list(runs)
    mixes = held[federated[0]]
    shown = [("what clients hold", mixes)]
    for scheme in federated:
        drawn = _drawn_with(runs[scheme][0])
        if drawn is not None and drawn.shape == mixes.shape and not np.allclose(drawn, mixes, atol=1e-6):
            shown.append((f"what {scheme} draws", drawn))
    axes = np.atleast_1d(figure.subplots(1, len(shown), sharey=True))
    for axis, (title, shares) in zip(axes, shown, strict=True):
        image = axis.imshow(shares[:MOST_CLIENTS], cmap="viridis", vmin=0, vmax=0.6, aspect="auto")
        axis.set_title(title)
        axis.set_xlabel("class")
        axis.set_xticks(range(0, shares.shape[1], max(1, shares.shape[1] // 10)))
    axes[0].set_ylabel("client")
    figure.colorbar(image, ax=list(axes), label="share", extend="max")


def _held_by(path: Path) -> np.ndarray:
    counts = np.array(json.loads((path / "split.json").read_text(encoding="utf-8"))["client_counts"], dtype=float)
    return counts / counts.sum(axis=1, keepdims=True)


def _drawn_with(path: Path) -> np.ndarray | None:
    lines = read_lines(path / "probabilities.jsonl")
    rows = lines[-1]["probabilities"] if lines else {}
    return np.array([rows[k] for k in sorted(rows, key=int)]) if rows else None
