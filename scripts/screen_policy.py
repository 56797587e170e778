"""Screen sampling policies by successive halving, as docs/policy.md describes it.

    python scripts/screen_policy.py OUT --jobs 2

Every candidate runs 4 rounds on both settings; the better half goes on to 8 rounds, and the better half of those to
12. A run that goes on continues its own run directory, so that nothing is computed twice. Started again with the same
OUT, the screen continues. OUT/screen.json has the scores of every stage.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from isfl.experiment.cells import Cell, run_or_resume
from isfl.problem.config import Config, apply, config_from, load_config

PRESETS = Path(__file__).parent.parent / "src/isfl/experiment/presets"
SETTINGS = {name: PRESETS / f"policy-{name}.toml" for name in ("nr98", "dirichlet")}
STAGES = (4, 8, 12)
"""Rounds after which the worse half is dropped; the last one ends the screen."""
WINDOW = 2
"""Last rounds whose accuracies are averaged: single rounds swing."""
MARGIN = 0.5
"""Percentage points: a candidate this close to the last one kept is kept as well."""

ISFL = ("scheme.sampling.first_round=target", "scheme.sampling.reference=before")
CALIBRATE = "scheme.objective.calibrate=true"
REFERENCES: dict[str, tuple[str, ...]] = {
    "fedavg": ("scheme=fedavg",),
    "uniform-is": ("scheme=uniform-is",),
    "isfl": ("scheme=isfl", *ISFL),
}
"""Rows to compare with; they are never dropped and never chosen."""
CANDIDATES: dict[str, tuple[str, ...]] = {
    **{f"t-{t}": ("scheme=tempered", f"scheme.sampling.temperature={t}") for t in (0.25, 0.5, 0.75)},
    **{f"t-{t}-cal": ("scheme=tempered", f"scheme.sampling.temperature={t}", CALIBRATE) for t in (0.25, 0.5, 0.75)},
    "t-0-cal": ("scheme=tempered", "scheme.sampling.temperature=0.0", CALIBRATE),
    "t-1-cal": ("scheme=tempered", "scheme.sampling.temperature=1.0", CALIBRATE),
    "shrunk-50": ("scheme=shrunk",),
    "shrunk-200": ("scheme=shrunk", "scheme.sampling.prior_samples=200.0"),
    "shrunk-50-cal": ("scheme=shrunk", CALIBRATE),
    "bv-1": ("scheme=bias-variance",),
    "bv-3": ("scheme=bias-variance", "scheme.sampling.weight=3.0"),
    "bv-10": ("scheme=bias-variance", "scheme.sampling.weight=10.0"),
    "bv-3-cal": ("scheme=bias-variance", "scheme.sampling.weight=3.0", CALIBRATE),
    "decaying": ("scheme=decaying",),
    "decaying-cal": ("scheme=decaying", CALIBRATE),
    "isfl-half": ("scheme=isfl", *ISFL, "scheme.sampling.strength=0.5"),
    "isfl-half-cal": ("scheme=isfl", *ISFL, "scheme.sampling.strength=0.5", CALIBRATE),
    "isfl-opposite": ("scheme=isfl", *ISFL, "scheme.sampling.strength=-0.5"),
}


@dataclass(frozen=True)
class Scores:
    """Means of D_S and D_G over the last rounds and over both, in percent, by label."""

    by_label: Mapping[str, float]

    def kept(self) -> list[str]:
        """Return the candidates that go on: the better half, and all within the margin of the last of it."""
        ranked = sorted((label for label in self.by_label if label in CANDIDATES), key=lambda k: -self.by_label[k])
        limit = self.by_label[ranked[(len(ranked) + 1) // 2 - 1]] - MARGIN
        return [label for label in ranked if self.by_label[label] >= limit]


def config_of(base: Config, overrides: Sequence[str], label: str) -> Config:
    """Return the base configuration with these overrides."""
    raw = base.model_dump(mode="json")
    for override in overrides:
        apply(raw, override)
    return config_from(raw, label)


def cells(bases: Mapping[str, Config], labels: Sequence[str], out: Path) -> list[Cell]:
    """Return one cell per setting and label."""
    every = {**REFERENCES, **CANDIDATES}
    return [
        Cell(group, label, base.seed, config_of(base, every[label], label), out / group / label)
        for label in labels
        for group, base in bases.items()
    ]


def advance(config: str, out: str, rounds: int) -> None:
    """Run a cell, or continue it, until it has completed this many rounds."""

    def stop(line: dict[str, Any]) -> None:
        if line["round"] >= rounds < Config.model_validate_json(config).training.rounds:
            raise KeyboardInterrupt

    try:
        run_or_resume(config, out, stop)
    except KeyboardInterrupt:
        print(f"{out}: {rounds} rounds", flush=True)


def score(of_label: Sequence[Cell], rounds: int) -> float:
    """Return the mean of D_S and D_G over the last rounds of a stage and over the settings, in percent."""
    found = [
        100 * line[key]
        for cell in of_label
        for line in cell.lines[rounds - WINDOW : rounds]
        for key in ("accuracy_standard", "accuracy_global")
    ]
    return float(np.mean(found))


def screen(bases: Mapping[str, Config], out: Path, jobs: int, stages: Sequence[int] = STAGES) -> list[str]:
    """Run all stages; return the candidates that are left, best first."""
    left, told = list(CANDIDATES), []
    for rounds in stages:
        labels = [*REFERENCES, *left]
        planned = cells(bases, labels, out)
        waiting = [cell for cell in planned if len(cell.lines) < rounds]
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            work = [pool.submit(advance, cell.config.model_dump_json(), str(cell.out), rounds) for cell in waiting]
            for each in work:
                each.result()
        scores = Scores({label: score([c for c in planned if c.label == label], rounds) for label in labels})
        left = scores.kept()
        told.append({"rounds": rounds, "scores": scores.by_label, "kept": left})
        (out / "screen.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        print(f"after {rounds} rounds: {', '.join(f'{k} {scores.by_label[k]:.1f}' for k in left)}", flush=True)
    return left


def main() -> None:
    """Read the command line and run the screen."""
    parser = argparse.ArgumentParser(description="Screen sampling policies (docs/policy.md)")
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    bases = {name: load_config(path, options.overrides) for name, path in SETTINGS.items()}
    screen(bases, options.out, options.jobs)


if __name__ == "__main__":
    main()
