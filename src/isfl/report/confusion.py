"""Which classes the model takes for which, round by round."""

from __future__ import annotations

from typing import Any

import numpy as np

from isfl.report.numbers import number, thinned
from isfl.report.reading import FoundRun

MOST_NAMED = 3
"""Confusions that are named in words."""


def confusion_of(run: FoundRun, room: int) -> tuple[dict[str, Any] | None, int]:
    """Return the confusion matrices of a run in at most `room` numbers, and how many it took; None without any."""
    width = len(run.class_names)
    found = [
        (line["round"], table) for line in run.lines if (table := _table(line.get("confusion"), width)) is not None
    ]
    most = room // max(width**2, 1)
    if not found or most < 1:
        return None, 0
    shown = thinned(found, most)
    content = {
        "left_out": len(found) - len(shown),
        "rounds": [{"round": at, "counts": table.tolist(), "most": _most(table)} for at, table in shown],
    }
    return content, width**2 * len(shown)


def _table(value: Any, width: int) -> np.ndarray | None:
    """Return a table of counts; None for anything else."""
    try:
        table = np.array(value)
    except ValueError:
        return None
    fits = table.shape == (width, width) and table.dtype.kind == "i" and (table >= 0).all()
    return table if fits and width else None


def _most(table: np.ndarray) -> list[list[float | None]]:
    """Return label, prediction and share of the label's samples, for the most frequent confusions."""
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    np.fill_diagonal(shares, 0.0)
    order = np.argsort(-shares, axis=None, kind="stable")[:MOST_NAMED]
    places = [divmod(int(place), len(table)) for place in order]
    return [[label, taken, number(float(shares[label, taken]))] for label, taken in places if shares[label, taken] > 0]
