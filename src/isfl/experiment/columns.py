"""The derived columns of tables, figures and reports: each formula stands here once.

A run is the lines of its metrics; a row of a table has one run per seed. Accuracies come in as shares and leave in
percent. What was not measured is NaN, so that unfinished and damaged runs can be shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isfl.theory.arrays import Array

Lines = Sequence[Mapping[str, Any]]
"""The metrics of a run, one dictionary per round."""

# ---------------------------------------------------------------- one run


def number(line: Mapping[str, Any], key: str) -> float:
    """Return a number of a line; `a.b` is `b` inside of `a`."""
    value: Any = line
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else math.nan


def series(lines: Lines, key: str) -> Array:
    """Return a number of every round."""
    return np.array([number(line, key) for line in lines], dtype=np.float64)


def total(lines: Lines, key: str) -> float:
    """Return the sum of a number over the rounds that have it."""
    return float(np.nansum(series(lines, key)))


def evaluated(lines: Lines) -> list[Mapping[str, Any]]:
    """Return the rounds with accuracies."""
    return [line for line in lines if line.get("accuracy_standard") is not None]


def last(lines: Lines, key: str) -> float:
    """Return a number in the last round that has it."""
    return next((value for value in reversed(series(lines, key).tolist()) if math.isfinite(value)), math.nan)


def spent(lines: Lines) -> Array:
    """Return the gradient evaluations of every round, for training and for sampling."""
    return series(lines, "gradient_evaluations.training") + series(lines, "gradient_evaluations.sampling")


def trained(lines: Lines) -> float:
    """Return the gradient evaluations for training, over all rounds."""
    return total(lines, "gradient_evaluations.training")


def screened(lines: Lines) -> float:
    """Return what an aggregation spent on looking at updates, in gradient evaluations, over all rounds."""
    return total(lines, "gradient_evaluations.aggregation")


def bytes_per_participant(lines: Lines) -> float:
    """Return the bytes up and down per participant and round, over all rounds; NaN if no client took part."""
    asked = sum(len(line["participants"]) for line in lines)
    return (total(lines, "bytes_up") + total(lines, "bytes_down")) / asked if asked else math.nan


def first_round_with(lines: Lines, goal: float) -> int | None:
    """Return the first round whose accuracy on D_S, a share, reaches the goal."""
    return next((line["round"] for line in evaluated(lines) if line["accuracy_standard"] >= goal), None)


def cost_of_reaching(lines: Lines, goal: float) -> float | None:
    """Return the gradient evaluations up to the end of the first round whose accuracy on D_S reaches the goal."""
    reached = first_round_with(lines, goal)
    return None if reached is None else float(np.nansum(spent(lines)[:reached]))


def simulated_seconds(lines: Lines, rounds: int | None = None) -> float | None:
    """Return how long the first `rounds` rounds (all by default) would have taken; None without simulated latencies."""
    values = series(lines, "simulated_seconds")[:rounds]
    return float(values.sum()) if len(values) and np.isfinite(values).all() else None


def time_of_reaching(lines: Lines, goal: float) -> float | None:
    """Return the simulated seconds up to the end of the first round whose accuracy on D_S reaches the goal."""
    reached = first_round_with(lines, goal)
    return None if reached is None else simulated_seconds(lines, reached)


def recall(lines: Lines, label: int | None) -> float:
    """Return the recall on D_S of one class in the last round that has it, a share; NaN for no class."""
    if label is None:
        return math.nan
    values = (line["recall"][label] for line in reversed(lines) if line.get("recall") is not None)
    return next((float(value) for value in values if value is not None), math.nan)


def best_line(lines: Lines) -> Mapping[str, Any]:
    """Return the round with the highest accuracy on D_S, the first of equals."""
    return max(evaluated(lines), key=lambda line: line["accuracy_standard"])


def accuracy_at(lines: Lines, budget: float) -> float:
    """Return the accuracy on D_S, a share, after `budget` gradient evaluations.

    Straight lines join the evaluated rounds. NaN before the first of them; after the last, its accuracy.
    """
    costs, accuracies = np.nancumsum(spent(lines)), series(lines, "accuracy_standard")
    known = np.isfinite(accuracies)
    if not known.any() or budget < costs[known][0] * (1 - 1e-12):
        return math.nan
    return float(np.interp(budget, costs[known], accuracies[known]))


# ---------------------------------------------------------------- the seeds of a row


def spread(shares: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample standard deviation of shares, in percent."""
    percent = 100.0 * np.asarray(shares)
    return float(percent.mean()), deviation(percent)


def deviation(values: Sequence[float] | Array) -> float:
    """Return the sample standard deviation; 0 for one value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def final_spread(runs: Sequence[Lines], key: str) -> tuple[float, float]:
    """Return mean and deviation, in percent, of the last known share of every run; NaN where no run has one."""
    shares = [share for share in (last(lines, key) for lines in runs) if math.isfinite(share)]
    return spread(shares) if shares else (math.nan, math.nan)


def last_five(runs: Sequence[Lines], key: str) -> float:
    """Return the mean, in percent, over the last five evaluated rounds of every run."""
    return spread([line[key] for lines in runs for line in evaluated(lines)[-5:]])[0]


def extra_gradients(runs: Sequence[Lines]) -> float:
    """Return the gradient evaluations for sampling in percent of those for training, over all rounds."""
    sampling, training = (
        sum(total(lines, f"gradient_evaluations.{part}") for lines in runs) for part in ("sampling", "training")
    )
    return 100.0 * sampling / training if training else math.nan


def mean_seconds(runs: Sequence[Lines]) -> float:
    """Return the mean seconds of computing per run: training and sampling, summed over clients and rounds."""
    each = [number(line, "seconds.training") + number(line, "seconds.sampling") for lines in runs for line in lines]
    return sum(seconds for seconds in each if math.isfinite(seconds)) / len(runs)


# ---------------------------------------------------------------- curves


@dataclass(frozen=True)
class Band:
    """What several seeds show together, at the rounds in which at least one of them was measured."""

    rounds: Array
    mean: Array
    low: Array
    high: Array


def band_of(values: Sequence[Array]) -> Band:
    """Return mean and range of one array of rounds per seed; a seed counts in the rounds it has."""
    table = np.full((len(values), max(len(row) for row in values)), np.nan)
    for row, own in zip(table, values, strict=True):
        row[: len(own)] = own
    measured = np.flatnonzero(np.isfinite(table).any(axis=0))
    table = table[:, measured]
    mean, low, high = (how(table, axis=0) for how in (np.nanmean, np.nanmin, np.nanmax))
    return Band(np.asarray(measured + 1, dtype=np.float64), mean, low, high)


def cost_band(runs: Sequence[Lines]) -> tuple[Array, Band]:
    """Return the accuracy on D_S in percent as a band, and the gradient evaluations spent up to each of its rounds."""
    band = band_of([100 * series(lines, "accuracy_standard") for lines in runs])
    costs = band_of([np.cumsum(spent(lines)) for lines in runs])
    return costs.mean[band.rounds.astype(int) - 1], band
