"""The table, the picture and the report of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure, SubFigure

from isfl import layout
from isfl.experiment.cells import Cell
from isfl.experiment.compare import Summary, summarise
from isfl.experiment.directory import told_when_full
from isfl.files import write_whole
from isfl.plotting import picture_of
from isfl.report.curves import Labelled, draw_curves, seeds_of
from isfl.report.page import write_report
from isfl.report.pictures import drawn_by
from isfl.report.reading import FoundRun, read_run
from isfl.report.table import write_summary
from isfl.theory.arrays import Array

MOST_CLIENTS = 40


def write_comparison(cells: Sequence[Cell], out: Path) -> list[Summary]:
    """Write the table, the picture and the report of finished cells into `out`; return the rows of the table."""
    rows = summarise(cells)
    write_summary(rows, out)
    runs = {row.scheme: [cell.out for cell in cells if cell.label == row.scheme] for row in rows}
    draw_comparison(runs, out / layout.COMPARISON)
    write_report([out], out / layout.REPORT)
    return rows


def draw_comparison(runs: Mapping[str, Sequence[Path]], out: Path) -> Path:
    """Draw local label mixes, sampling probabilities and accuracy over rounds; return the path of the PNG.

    `runs` has the run directories of every scheme, one per seed.
    """
    found = {scheme: [read_run(path) for path in paths] for scheme, paths in runs.items()}
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    halves = figure.subfigures(2, 1, height_ratios=[1, 1.15])
    assert isinstance(halves, np.ndarray)
    top, bottom = halves
    _draw_mixes(top, found)
    left, right = bottom.subplots(1, 2)
    seeds = seeds_of([found])
    draw_curves(left, found, "accuracy_standard", f"balanced test set (D_S): {seeds}", "accuracy in %")
    draw_curves(right, found, "accuracy_global", f"all clients' data (D_G): {seeds}", "accuracy in %")
    left.legend(frameon=False, loc="lower right", handlelength=3.2)
    with told_when_full(out.parent):
        write_whole(out, picture_of(figure, "png", resolution=150))
    return out


def _draw_mixes(figure: SubFigure, runs: Labelled) -> None:
    """Draw what clients hold, and what each importance-sampling scheme draws in its last round."""
    held = {scheme: _held_by(found[0]) for scheme, found in runs.items()}
    federated = [scheme for scheme in runs if len(held[scheme]) > 1] or list(runs)
    mixes = held[federated[0]]
    shown = [("what clients hold", mixes)]
    for scheme in federated:
        drawn = np.array([q[-1] for q in drawn_by(runs[scheme][0]).values()])
        if drawn.shape == mixes.shape and not np.allclose(drawn, mixes, atol=1e-6):
            shown.append((f"what {scheme} draws", drawn))
    axes = np.atleast_1d(figure.subplots(1, len(shown), sharey=True))
    for axis, (title, shares) in zip(axes, shown, strict=True):
        image = axis.imshow(shares[:MOST_CLIENTS], cmap="viridis", vmin=0, vmax=0.6, aspect="auto")
        axis.set_title(title)
        axis.set_xlabel("class")
        axis.set_xticks(range(0, shares.shape[1], max(1, shares.shape[1] // 10)))
    axes[0].set_ylabel("client")
    figure.colorbar(image, ax=list(axes), label="share", extend="max")


def _held_by(run: FoundRun) -> Array:
    assert run.shares is not None, "a comparison splits its data itself"
    return run.shares
