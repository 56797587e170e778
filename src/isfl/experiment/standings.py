"""How sampling policies stand against each other over settings and seeds: the measures of `docs/policy.md`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isfl.experiment import columns
from isfl.experiment.cells import Cell
from isfl.experiment.columns import Lines
from isfl.experiment.paired import Paired, paired
from isfl.experiment.paper_setting import Raw
from isfl.experiment.policy import CANDIDATES

REFERENCE = "fedavg"
Runs = Mapping[str, Mapping[str, Mapping[int, Lines]]]
"""Label -> setting -> seed -> the lines of a complete run."""


@dataclass(frozen=True)
class Standing:
    """A policy over all settings of a step, in percent."""

    label: str
    seeds: int
    """Those that it has on every setting."""
    score: float
    """Mean of D_S and D_G over the last five rounds, over seeds and settings."""
    by_setting: Mapping[str, float]
    against_fedavg: Paired | None
    """Score minus FedAvg's with the same seeds; None for FedAvg itself, and without a common seed."""
    against_best: Paired | None
    """Score minus that of the best candidate with the same seeds; None for that candidate itself, and without a common
    seed."""
    extra_gradients: float
    """Gradient evaluations for sampling, in percent of those for training."""
    kilobytes: float
    """Bytes up and down per participant and round, in thousands."""
    best: bool
    """Whether it is the candidate with the highest score."""

    @property
    def level(self) -> bool:
        """Whether it is known to be within one standard error of the best candidate."""
        pair = self.against_best
        return self.best or (pair is not None and -pair.mean <= pair.spread / math.sqrt(pair.seeds))


def standings(cells: Sequence[Cell]) -> list[Standing]:
    """Return one row per policy that has a seed on every setting, the best first; incomplete runs do not count."""
    runs = _complete(cells)
    settings = {setting for own in runs.values() for setting in own}
    scores = {label: _scores(own) for label, own in runs.items() if own.keys() == settings}
    scores = {label: own for label, own in scores.items() if own}
    means = {label: float(np.mean(list(own.values()))) for label, own in scores.items()}
    ranked = sorted(means, key=lambda label: -means[label])
    best = next((label for label in ranked if label in CANDIDATES), None)
    return [
        Standing(
            label=label,
            seeds=len(scores[label]),
            score=means[label],
            by_setting={
                setting: float(np.mean([score(own[seed]) for seed in scores[label]]))
                for setting, own in runs[label].items()
            },
            against_fedavg=_pair(scores, label, REFERENCE),
            against_best=_pair(scores, label, best),
            extra_gradients=columns.extra_gradients(_all(runs[label])),
            kilobytes=float(np.mean([columns.bytes_per_participant(lines) for lines in _all(runs[label])])) / 1000,
            best=label == best,
        )
        for label in ranked
    ]


def gains(cells: Sequence[Cell], reference: str = REFERENCE) -> dict[str, dict[str, Paired]]:
    """Return label -> setting -> score minus the reference's, paired by seed.

    Settings without a common seed are left out.
    """
    runs = _complete(cells)
    scores = {
        label: {setting: {seed: score(lines) for seed, lines in seeds.items()} for setting, seeds in own.items()}
        for label, own in runs.items()
    }
    others = scores.pop(reference, {})
    found = {
        label: {setting: paired(seeds, others.get(setting, {})) for setting, seeds in own.items()}
        for label, own in scores.items()
    }
    return {label: {at: pair for at, pair in own.items() if pair is not None} for label, own in found.items()}


def over_settings(pairs: Mapping[str, Paired]) -> Paired | None:
    """Return the mean of the differences of all settings; their spread says how much settings differ."""
    means = {number: pair.mean for number, pair in enumerate(pairs.values())}
    return paired(means, dict.fromkeys(means, 0.0))


def winner(rows: Sequence[Standing]) -> Standing | None:
    """Return the candidate that the protocol chooses; None without a candidate.

    The one with the highest score. If others are within one standard error of it: the one of them with the fewest
    extra gradients, then with the fewest settings, then with the highest score.
    """
    level = [row for row in rows if row.label in CANDIDATES and row.level]
    return min(level, key=lambda row: (row.extra_gradients, _settings(CANDIDATES[row.label]), -row.score), default=None)


def score(lines: Lines) -> float:
    """Return the mean of D_S and D_G over the last five evaluated rounds of a run, in percent."""
    return sum(columns.last_five([lines], key) for key in ("accuracy_standard", "accuracy_global")) / 2


def _complete(cells: Sequence[Cell]) -> Runs:
    runs: dict[str, dict[str, dict[int, Lines]]] = {}
    for cell in cells:
        if cell.complete:
            runs.setdefault(cell.label, {}).setdefault(cell.group, {})[cell.seed] = cell.lines
    return runs


def _scores(runs: Mapping[str, Mapping[int, Lines]]) -> dict[int, float]:
    """Return the mean score over settings of every seed that all of them have."""
    seeds = set.intersection(*(set(own) for own in runs.values()))
    return {seed: float(np.mean([score(own[seed]) for own in runs.values()])) for seed in sorted(seeds)}


def _pair(scores: Mapping[str, Mapping[int, float]], label: str, other: str | None) -> Paired | None:
    return None if other in (None, label) or other not in scores else paired(scores[label], scores[other])


def _all(runs: Mapping[str, Mapping[int, Lines]]) -> list[Lines]:
    return [lines for own in runs.values() for lines in own.values()]


def _settings(row: Raw) -> int:
    """Return how many settings a user of this policy has to know: the keys of its rule, and calibration."""
    return len(row["sampling"]) + ("objective" in row)
