"""Many runs under one roof: each cell is a run directory of its own, and the whole goes on where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isfl.errors import UserError
from isfl.experiment.checkpoints import write_whole
from isfl.experiment.config import Config, config_from
from isfl.experiment.directory import read_lines, refuse_used
from isfl.experiment.workers import run_jobs

PLAN = "cells.json"


@dataclass(frozen=True)
class Cell:
    """One run: `label` says what it is among the others of its `group` (a scheme in a column of a table)."""

    group: str
    label: str
    seed: int
    config: Config
    out: Path

    @property
    def name(self) -> str:
        return " · ".join(part for part in (self.group, self.label, f"seed {self.seed}") if part)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has written so far; the run directory is the only channel between processes."""
        return read_lines(self.out / "metrics.jsonl")

    @property
    def complete(self) -> bool:
        """All its rounds have been measured: everything that is ever shown of it is there."""
        return len(self.lines) == self.config.training.rounds

    @property
    def finished(self) -> bool:
        """It is complete and its model is written: nothing is left to run."""
        return (self.out / "model.safetensors").exists()


def begin_cells(cells: Sequence[Cell], out: Path, kind: dict[str, Any], check: Sequence[Cell] | None = None) -> None:
    """Check that every cell (or those in `check`) can begin, then write the plan: nothing starts before all is well.

    `kind` tells what the cells are for: `{"command": "compare", ...}`.
    """
    from isfl.experiment.run import begin

    refuse_used(out)
    for cell in cells if check is None else check:
        begin(cell.config)
    plan = {
        **kind,
        "cells": [
            {
                "group": cell.group,
                "label": cell.label,
                "seed": cell.seed,
                "out": str(cell.out.relative_to(out)),
                "config": cell.config.model_dump(mode="json"),
            }
            for cell in cells
        ],
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / PLAN, (json.dumps(plan, indent=2) + "\n").encode())
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror})") from None


def planned_cells(out: Path) -> tuple[dict[str, Any], list[Cell]]:
    """The plan that `begin_cells` wrote, and its cells."""
    try:
        plan = json.loads((out / PLAN).read_text(encoding="utf-8"))
        cells = [
            Cell(row["group"], row["label"], row["seed"], config_from(row["config"], str(out / PLAN)), out / row["out"])
            for row in plan["cells"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{out / PLAN}: cannot be read ({error})") from None
    return plan, cells


def run_cells(cells: Sequence[Cell], jobs: int | None, watch: Callable[[Sequence[Cell]], None]) -> None:
    """Run what is not finished yet, `jobs` at a time (default: one per core)."""
    work = [(cell.config.model_dump_json(), str(cell.out)) for cell in cells if not cell.finished]
    if work:
        run_jobs(run_or_resume, work, jobs or os.cpu_count() or 1, lambda: watch(cells))
    watch(cells)


def run_or_resume(config: str, out: str) -> None:
    from isfl.experiment.run import resume, run

    if Path(out).exists():
        resume(Path(out))
    else:
        run(Config.model_validate_json(config), Path(out))
