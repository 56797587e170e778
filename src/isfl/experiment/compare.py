"""Schemes side by side: every (scheme, seed) is a run of its own, in a worker process with one thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isfl.errors import UserError
from isfl.experiment.config import Config, config_from
from isfl.experiment.directory import read_lines, refuse_used
from isfl.experiment.workers import run_jobs


@dataclass(frozen=True)
class Cell:
    """One run of a comparison."""

    scheme: str
    seed: int
    config: Config
    out: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has written so far; the run directory is the only channel between processes."""
        return read_lines(self.out / "metrics.jsonl")


@dataclass(frozen=True)
class Summary:
    """A scheme's last round over its seeds: means and sample standard deviations, in percent."""

    scheme: str
    seeds: int
    standard: float
    standard_spread: float
    global_: float
    global_spread: float
    worst_client: float
    worst_client_spread: float
    extra_gradients: float
    """Gradient evaluations for sampling, in percent of those for training."""
    seconds: float
    """Mean seconds of computing (training and sampling) a run."""


def cells_of(config: Config, schemes: Sequence[str], seeds: Sequence[int], out: Path) -> list[Cell]:
    """All runs of the comparison, each prepared once to see that it can be: nothing starts before all is well."""
    if not schemes or not seeds:
        raise UserError("--schemes and --seeds need at least one value each, for instance --schemes fedavg,isfl")
    for option, values in (("--schemes", schemes), ("--seeds", seeds)):
        if len(set(values)) != len(values):
            raise UserError(f"{option} names something twice: {','.join(map(str, values))}")
    refuse_used(out)
    cells = []
    for scheme in schemes:
        for seed in seeds:
            raw = config.model_dump(mode="json")
            # The file's own scheme keeps its parts; another name stands for its own.
            raw |= {"seed": seed} if scheme == config.scheme.name else {"seed": seed, "scheme": scheme}
            cells.append(Cell(scheme, seed, config_from(raw, f"scheme {scheme}"), out / scheme / f"seed-{seed}"))
    from isfl.experiment.run import begin

    for cell in cells:
        begin(cell.config)
    return cells


def run_cells(cells: Sequence[Cell], jobs: int | None, watch: Callable[[Sequence[Cell]], None]) -> None:
    """Run the cells, `jobs` at a time (default: one per core)."""
    work = [(cell.config.model_dump_json(), str(cell.out)) for cell in cells]
    run_jobs(_run_cell, work, jobs or os.cpu_count() or 1, lambda: watch(cells))


def _run_cell(config: str, out: str) -> None:
    from isfl.experiment.run import run

    run(Config.model_validate_json(config), Path(out))


def summarise(cells: Sequence[Cell]) -> list[Summary]:
    """One row a scheme, in the order the schemes were given."""
    rows = []
    for scheme in dict.fromkeys(cell.scheme for cell in cells):
        runs = [cell.lines for cell in cells if cell.scheme == scheme]
        last = [lines[-1] for lines in runs]
        standard, standard_spread = _spread([line["accuracy_standard"] for line in last])
        global_, global_spread = _spread([line["accuracy_global"] for line in last])
        worst, worst_spread = _spread([line["worst_client_accuracy"] for line in last])
        gradients = [line["gradient_evaluations"] for lines in runs for line in lines]
        seconds = [line["seconds"] for lines in runs for line in lines]
        rows.append(
            Summary(
                scheme=scheme,
                seeds=len(runs),
                standard=standard,
                standard_spread=standard_spread,
                global_=global_,
                global_spread=global_spread,
                worst_client=worst,
                worst_client_spread=worst_spread,
                extra_gradients=100.0 * sum(g["sampling"] for g in gradients) / sum(g["training"] for g in gradients),
                seconds=sum(s["training"] + s["sampling"] for s in seconds) / len(runs),
            )
        )
    return rows


def _spread(values: Sequence[float]) -> tuple[float, float]:
    percent = 100.0 * np.asarray(values)
    return float(percent.mean()), float(percent.std(ddof=1)) if len(values) > 1 else 0.0
