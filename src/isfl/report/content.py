"""The content of a page about runs, as plain numbers: the browser draws them and computes none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isfl.experiment.columns import extra_gradients, total
from isfl.report.clients import clients_of
from isfl.report.confusion import confusion_of
from isfl.report.detail import detail_of
from isfl.report.numbers import count, number
from isfl.report.reading import FoundRun, flat, part_of
from isfl.report.side_by_side import side_by_side
from isfl.report.summary import about_run, about_schemes

MOST_NUMBERS = 1_500_000
"""Limit for the heat maps of a page: about 10 MB."""
CONFUSION_PART = 10
"""The confusion matrices of a run take at most this part of what is left."""

SERIES = (
    "accuracy_standard",
    "accuracy_global",
    "worst_client",
    "worst_client_accuracy",
    "train_loss",
    "rho_used",
    "rho_paper",
    "rho_minimum",
    "gradient_square",
    "bytes_up",
    "bytes_down",
    "dropped_samples",
)
"""Numbers of a line of metrics, over rounds."""

GROUPS = {
    "gradient_evaluations": ("training", "sampling", "diagnostics", "aggregation"),
    "seconds": ("training", "sampling", "diagnostics", "aggregation", "evaluation", "wall"),
    "drift": ("measured", "bound"),
    "bound": ("initial", "psi", "sampling", "total", "step_condition"),
}
"""Numbers of a line that are grouped, by group."""

TOTALS = ("gradient_evaluations", "seconds")
"""Those that make sense as sums over rounds."""


def content_of(runs: Sequence[FoundRun], refused: Sequence[str]) -> dict[str, Any]:
    """Return the data of a page; `refused` are lines about directories that show nothing."""
    left = MOST_NUMBERS
    shown = []
    for run in runs:
        confusion, used = confusion_of(run, left // CONFUSION_PART)
        left -= used
        detail, used = detail_of(run, left)
        left -= used
        words = about_run(run, alone=len(runs) == 1)
        shown.append({"summary": words, **_numbers_of(run), "confusion": confusion, "detail": detail})
    several = len(runs) > 1
    return {
        "refused": list(refused),
        "summary": about_schemes(runs) if several else [],
        "runs": shown,
        "side_by_side": side_by_side(runs) if several else None,
    }


def _numbers_of(run: FoundRun) -> dict[str, Any]:
    recalls = [line["recall"] for line in run.lines if isinstance(line.get("recall"), list)]
    return {
        "name": run.name,
        "label": run.label,
        "scheme": run.scheme,
        "seed": run.seed,
        "rounds": run.rounds,
        "finished": run.finished,
        "under_way": run.under_way,
        "problems": list(run.problems),
        "warnings": warnings_of(run),
        "about": _about(run),
        "settings": {key: _told(value) for key, value in flat(run.config).items()},
        "classes": list(run.class_names),
        "round": [line["round"] for line in run.lines],
        "series": {key: [number(line.get(key)) for line in run.lines] for key in SERIES},
        "groups": {
            key: {part: [number(_part(line, key, part)) for line in run.lines] for part in parts}
            for key, parts in GROUPS.items()
        },
        "totals": {
            **{key: {part: count(total(run.lines, f"{key}.{part}")) for part in GROUPS[key]} for key in TOTALS},
            **{key: count(total(run.lines, key)) for key in ("bytes_up", "bytes_down")},
            "extra_gradients": number(extra_gradients([run.lines])),
        },
        "clients": clients_of(run),
        "recall": [number(value) for value in recalls[-1]] if recalls else None,
        "participants": [len(line.get("participants") or []) for line in run.lines],
        "refused": [
            [line["round"], client, str(reason)]
            for line in run.lines
            if isinstance(line.get("refused"), dict)
            for client, reason in line["refused"].items()
        ],
    }


def _about(run: FoundRun) -> list[list[str]]:
    """Return what was run, in the words of the configuration."""
    config, environment = run.config, run.environment
    split, model, training, data = (part_of(config, key) for key in ("split", "model", "training", "data"))
    split, optimizer = dict(split), part_of(training, "optimizer")
    clients = len(run.counts) if run.counts is not None else split.get("clients")
    rows = {
        "scheme": run.scheme,
        "seed": run.seed,
        "data": data.get("name"),
        "split": " ".join([str(split.pop("kind", "")), *(f"{key} {value}" for key, value in split.items())]),
        "clients": clients,
        "public set": None if run.public_counts is None else f"{run.public_counts.sum():.0f} samples",
        "model": " ".join(str(value) for value in model.values() if value is not None),
        "local training": " ".join(
            f"{key} {value}" for key, value in {**training, **optimizer}.items() if isinstance(value, str | int | float)
        ),
        "engine": part_of(environment, "engine").get("kind", "local"),
        "versions": ", ".join(f"{key} {value}" for key, value in part_of(environment, "versions").items()),
        "machine": ", ".join(str(value) for value in dict(environment.get("machine") or {}).values()),
    }
    return [[key, str(value)] for key, value in rows.items() if value not in (None, "")]


def warnings_of(run: FoundRun) -> list[str]:
    """Return what a reader of the numbers should know."""
    found = []
    if run.public_counts is not None and (lacking := np.flatnonzero(run.public_counts == 0)).size:
        names = ", ".join(run.class_names[i] for i in lacking[:10]) + (", …" if len(lacking) > 10 else "")
        found.append(f"The public set has no sample of {names}: the Lipschitz values there are set to the average.")
    dropped = [line["round"] for line in run.lines if line.get("dropped_samples")]
    if dropped:
        found.append(
            f"Public samples without a finite gradient were left out in {len(dropped)} rounds, first in round "
            f"{dropped[0]}."
        )
    clipped = [line["round"] for line in run.lines if line.get("clipped_values")]
    if clipped:
        found.append(
            f"Values of masked updates were beyond secure.range and clipped in {len(clipped)} rounds, first in round "
            f"{clipped[0]}."
        )
    steps = [_part(line, "bound", "step_condition") for line in run.lines]
    if large := sum(isinstance(step, int | float) and step > 1 for step in steps):
        found.append(
            f"The learning rate is larger than Theorem 1 allows (eta times the mean L is above 1) in {large} of "
            f"{len(steps)} rounds: in these rounds the bound is only indicative."
        )
    if run.evaluated and all(line.get("accuracy_global") is None for line in run.evaluated):
        found.append("Accuracy on the clients' data (D_G) was not measured: it could reveal the private class counts.")
    return found


def _part(line: Mapping[str, Any], key: str, part: str) -> Any:
    inner = line.get(key)
    return inner.get(part) if isinstance(inner, dict) else None


def _told(value: Any) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
