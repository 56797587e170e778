"""Screen sampling policies by successive halving, as docs/policy.md describes it.

    python scripts/screen_policy.py OUT --jobs 2

The cells are those of `isfl reproduce policy-screen`. Every candidate runs 4 rounds on both settings; the better half
goes on to 8 rounds, and the better half of those to 12. A run that goes on continues its own run directory, so that
nothing is computed twice. Started again with the same OUT, the screen continues. OUT/screen.json has the scores of
every stage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from isfl.errors import UserError
from isfl.experiment.cells import Cell, run_or_resume
from isfl.experiment.paper_setting import Setting, setting_named
from isfl.experiment.policy import CANDIDATES, REFERENCES
from isfl.experiment.reproduce import reproduction_cells
from isfl.problem.config import Config

STAGES = (4, 8, 12)
"""Rounds after which the worse half is dropped; the last one ends the screen."""
WINDOW = 2
"""Last rounds whose accuracies are averaged: single rounds swing."""
MARGIN = 0.5
"""Percentage points: a candidate this close to the last one kept is kept as well."""


@dataclass(frozen=True)
class Scores:
    """Means of D_S and D_G over the last rounds of a stage, in percent, by label and setting."""

    by_label: Mapping[str, Mapping[str, float]]

    def mean(self, label: str) -> float:
        """Return the mean over the settings."""
        return float(np.mean(list(self.by_label[label].values())))

    def kept(self) -> list[str]:
        """Return the candidates that go on, best first: the better half, and all within the margin of its last."""
        ranked = sorted((label for label in self.by_label if label in CANDIDATES), key=lambda label: -self.mean(label))
        limit = self.mean(ranked[(len(ranked) + 1) // 2 - 1]) - MARGIN
        return [label for label in ranked if self.mean(label) >= limit]


def advance(config: str, out: str, rounds: int) -> None:
    """Run a cell, or continue it, until it has completed this many rounds."""

    def stop(line: dict[str, Any]) -> None:
        if line["round"] >= rounds < Config.model_validate_json(config).training.rounds:
            raise KeyboardInterrupt

    try:
        run_or_resume(config, out, stop)
    except KeyboardInterrupt:
        print(f"{out}: {rounds} rounds", flush=True)


def score(cell: Cell, rounds: int) -> float:
    """Return the mean of D_S and D_G over the last rounds of a stage, in percent."""
    lines = cell.lines[rounds - WINDOW : rounds]
    return float(np.mean([100 * line[key] for line in lines for key in ("accuracy_standard", "accuracy_global")]))


def screen(cells: Sequence[Cell], out: Path, jobs: int, stages: Sequence[int] = STAGES) -> list[str]:
    """Run all stages; return the candidates that are left, best first."""
    left, told = [label for label in CANDIDATES if any(cell.label == label for cell in cells)], []
    for rounds in stages:
        running = [cell for cell in cells if cell.label in (*REFERENCES, *left)]
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            work = [
                pool.submit(advance, cell.config.model_dump_json(), str(cell.out), rounds)
                for cell in running
                if len(cell.lines) < rounds
            ]
            for each in work:
                each.result()
        by_label: dict[str, dict[str, float]] = {}
        for cell in running:
            by_label.setdefault(cell.label, {})[cell.group] = score(cell, rounds)
        scores = Scores(by_label)
        left = scores.kept()
        told.append({"rounds": rounds, "scores": by_label, "kept": left})
        (out / "screen.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        print(f"after {rounds} rounds: {', '.join(f'{k} {scores.mean(k):.1f}' for k in left)}", flush=True)
    return left


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and run the screen."""
    parser = argparse.ArgumentParser(description="Screen sampling policies (docs/policy.md)")
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--scale", default="half", help="as of isfl reproduce")
    options = parser.parse_args(arguments)
    try:
        setting: Setting = setting_named(options.scale, "published")
        screen(reproduction_cells("policy-screen", setting, [0], options.out, None), options.out, options.jobs)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
