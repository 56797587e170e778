"""Differences between labels, paired by seed, for the page and its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isfl.experiment import columns
from isfl.experiment.paired import Paired, paired
from isfl.report.numbers import number
from isfl.report.reading import FoundRun

METRICS = ("accuracy_standard", "accuracy_global", "worst_client_accuracy")
"""What is compared, in percentage points."""

Members = Mapping[str, Sequence[FoundRun]]
"""Label -> its runs, one per seed."""


def differences(members: Members) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return metric -> reference label -> the difference of every label of its group to it; empty without a pair."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for metric in METRICS:
        values = {label: finals(runs, metric) for label, runs in members.items()}
        for reference, theirs in values.items():
            rows = [
                {"label": label, **_content(pair)}
                for label, ours in values.items()
                if label != reference and members[label][0].group == members[reference][0].group
                if (pair := paired(ours, theirs)) is not None
            ]
            if rows:
                found.setdefault(metric, {})[reference] = rows
    return found


def finals(runs: Sequence[FoundRun], metric: str) -> dict[int, float]:
    """Return the last known value by seed, in percent; a seed with several runs is left out, as it has no pair."""
    seeds = [run.seed for run in runs]
    return {
        run.seed: 100 * columns.last(run.lines, metric)
        for run in runs
        if run.seed is not None and seeds.count(run.seed) == 1
    }


def _content(pair: Paired) -> dict[str, Any]:
    return {
        "mean": number(pair.mean),
        "half_width": None if pair.half_width is None else number(pair.half_width),
        "ahead": sum(difference > 0 for difference in pair.by_seed.values()),
        "by_seed": [[seed, number(difference)] for seed, difference in pair.by_seed.items()],
    }
