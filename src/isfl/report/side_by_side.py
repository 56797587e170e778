"""Several runs side by side, for the page: one row per label, over its seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isfl.experiment import columns
from isfl.experiment.columns import Band, Lines
from isfl.report.differences import differences
from isfl.report.numbers import count, number
from isfl.report.reading import FoundRun
from isfl.theory.arrays import Array

CURVES = {"accuracy_standard": 100.0, "accuracy_global": 100.0, "train_loss": 1.0}
"""Metrics drawn over rounds, with what they are multiplied by."""


def side_by_side(runs: Sequence[FoundRun]) -> dict[str, Any] | None:
    """Return rows and curves of all runs with a round; None without any.

    `members` of a row are places in `runs`. `budget` is the least number of gradient evaluations any run spent: what
    they have in common. `target` is an accuracy in percent to count rounds to: FedAvg's, or the lowest.
    """
    members: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        if run.lines:
            members.setdefault(run.label, []).append(i)
    if not members:
        return None
    groups = {label: [runs[i].lines for i in own] for label, own in members.items()}
    budget = min(float(np.nansum(columns.spent(lines))) for group in groups.values() for lines in group)
    return {
        "target": _target(groups),
        "budget": count(budget),
        "rows": [{"label": label, "members": members[label], **_row(group, budget)} for label, group in groups.items()],
        "curves": {
            metric: [
                {"label": label, **_band(columns.band_of([factor * columns.series(lines, metric) for lines in group]))}
                for label, group in groups.items()
            ]
            for metric, factor in CURVES.items()
        },
        "differences": differences({label: [runs[i] for i in own] for label, own in members.items()}),
        "cost": [{"label": label, **_cost(group)} for label, group in groups.items()],
    }


def _target(groups: Mapping[str, Sequence[Lines]]) -> float:
    finals = {label: columns.final_spread(group, "accuracy_standard")[0] for label, group in groups.items()}
    known = {label: 0.0 if math.isnan(final) else final for label, final in finals.items()}
    return math.floor(10 * known.get("fedavg", min(known.values()))) / 10


def _row(group: Sequence[Lines], budget: float) -> dict[str, Any]:
    equal = [share for share in (columns.accuracy_at(lines, budget) for lines in group) if math.isfinite(share)]
    return {
        "standard": _spread(columns.final_spread(group, "accuracy_standard")),
        "global": _spread(columns.final_spread(group, "accuracy_global")),
        "worst_client": _spread(columns.final_spread(group, "worst_client_accuracy")),
        "equal_cost": _spread(columns.spread(equal)) if equal else None,
        "extra_gradients": number(columns.extra_gradients(group)),
        "seconds": number(columns.mean_seconds(group)),
    }


def _spread(found: tuple[float, float]) -> list[float | None] | None:
    return None if math.isnan(found[0]) else [number(value) for value in found]


def _band(band: Band) -> dict[str, list[float | None]]:
    return {"x": _list(band.rounds), "y": _list(band.mean), "low": _list(band.low), "high": _list(band.high)}


def _cost(group: Sequence[Lines]) -> dict[str, list[float | None]]:
    costs, band = columns.cost_band(group)
    return {"x": [count(cost) for cost in costs.tolist()], "y": _list(band.mean)}


def _list(values: Array) -> list[float | None]:
    return [number(value) for value in values.tolist()]
