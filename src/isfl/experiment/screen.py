"""The screen of sampling policies: successive halving, as `docs/policy.md` describes it.

Every candidate runs 4 rounds on every setting to choose on; the better half goes on to 8 rounds, and the better half of
those to 12 (K. Jamieson, A. Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
AISTATS 2016).
Which candidates go on follows from the run directories alone, so a screen that was stopped continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isfl.engines.local.worker_pool import Handler, WorkerPool
from isfl.experiment import columns
from isfl.experiment.cells import Cell, run_or_resume
from isfl.experiment.columns import Lines
from isfl.experiment.policy import CANDIDATES, REFERENCES
from isfl.problem.config import Config

STAGES = (4, 8, 12)
"""Rounds after which the worse half is dropped; the last one ends the screen."""
WINDOW = 2
"""Last rounds whose accuracies are averaged: single rounds swing."""
MARGIN = 0.5
"""Percentage points: a candidate this close to the last one kept is kept as well."""


@dataclass(frozen=True)
class Stage:
    """What a stage decides on: means of D_S and D_G over its last rounds, in percent."""

    rounds: int
    scores: Mapping[str, Mapping[str, float]]
    """Label -> setting -> score."""

    def mean(self, label: str) -> float:
        """Return the mean over the settings."""
        return float(np.mean(list(self.scores[label].values())))

    @property
    def kept(self) -> list[str]:
        """The candidates that go on, best first: the better half, and all within the margin of its last."""
        ranked = sorted((label for label in self.scores if label in CANDIDATES), key=lambda label: -self.mean(label))
        limit = self.mean(ranked[(len(ranked) + 1) // 2 - 1]) - MARGIN
        return [label for label in ranked if self.mean(label) >= limit]


def screen(cells: Sequence[Cell], jobs: int, stages: Sequence[int] = STAGES) -> Iterator[Stage]:
    """Run the screen, `jobs` runs at a time; yield every stage when it is complete."""
    for number, rounds in enumerate(stages):
        work = [
            (cell.config.model_dump_json(), str(cell.out), rounds)
            for cell in _running(cells, completed(cells, stages[:number]))
            if len(cell.lines) < rounds
        ]
        pool = WorkerPool(min(jobs, len(work)), _advancing)
        try:
            for _ in pool.run(work):
                pass
        finally:
            pool.close()
        yield completed(cells, stages[: number + 1])[-1]


def completed(cells: Sequence[Cell], stages: Sequence[int] = STAGES) -> list[Stage]:
    """Return the stages whose runs all have their rounds."""
    found: list[Stage] = []
    for rounds in stages:
        running = _running(cells, found)
        if any(len(cell.lines) < rounds for cell in running):
            break
        scores: dict[str, dict[str, float]] = {}
        for cell in running:
            scores.setdefault(cell.label, {})[cell.group] = score(cell.lines, rounds)
        found.append(Stage(rounds, scores))
    return found


def _running(cells: Sequence[Cell], before: Sequence[Stage]) -> list[Cell]:
    """Return the references and the candidates that are left after these stages."""
    left = before[-1].kept if before else CANDIDATES
    return [cell for cell in cells if cell.label in REFERENCES or cell.label in left]


def _advancing(number: int) -> Handler:
    return advance


class _StageReachedError(Exception):
    """Ends a run after the last round of a stage."""


def advance(config: str, out: str, rounds: int) -> None:
    """Run a cell, or continue it, until it has completed this many rounds."""
    every = Config.model_validate_json(config).training.rounds

    def stop(line: dict[str, Any]) -> None:
        if line["round"] >= rounds < every:
            raise _StageReachedError

    try:
        run_or_resume(config, out, stop)
    except _StageReachedError:
        print(f"{out}: {rounds} rounds", flush=True)


def score(lines: Lines, rounds: int) -> float:
    """Return the mean of D_S and D_G over the last rounds of a stage, in percent."""
    return sum(accuracies(lines, rounds)) / 2


def accuracies(lines: Lines, rounds: int) -> tuple[float, float]:
    """Return D_S and D_G over the last rounds of a stage, in percent."""
    last = lines[rounds - WINDOW : rounds]
    standard, global_ = (100 * columns.series(last, f"accuracy_{kind}").mean() for kind in ("standard", "global"))
    return float(standard), float(global_)


def stopped_at(cell: Cell) -> int | None:
    """Return the stage that a run is at the end of, stopped there or passing; None while it is between two."""
    rounds = len(cell.lines)
    return rounds if rounds in STAGES else None
