"""Many runs in one directory: each cell is a run directory, and an interrupted whole can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from isfl import layout
from isfl.engines.local.executor import start_method
from isfl.engines.local.worker import devices
from isfl.engines.local.worker_pool import Handler, WorkerPool, cores
from isfl.errors import UserError
from isfl.experiment.directory import RunDirectory, refuse_used, told_when_full
from isfl.files import appear, write_whole
from isfl.lines import LineReader
from isfl.problem.config import Config, config_from
from isfl.problem.given import NOTHING, Given
from isfl.problem.problem import with_data


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
        """The metrics written so far; the run directory is the only channel between processes."""
        return self._reader.read()

    @cached_property
    def _reader(self) -> LineReader:
        return LineReader(self.out / layout.METRICS)

    @property
    def complete(self) -> bool:
        """Whether all its rounds have been measured, which is all that tables and figures need."""
        return len(self.lines) == self.config.training.rounds

    @property
    def finished(self) -> bool:
        """Whether its model is written too: nothing is left to run."""
        return (self.out / layout.MODEL).exists()


def begin_cells(
    cells: Sequence[Cell],
    out: Path,
    kind: dict[str, Any],
    check: Sequence[Cell] | None = None,
    given: Given = NOTHING,
) -> None:
    """Check that every cell (or those in `check`) can begin, then write the plan: nothing starts before all is well.

    `kind` tells what the cells are for: `{"command": "compare", ...}`.
    """
    from isfl.experiment.run import check_runnable

    refuse_used(out)
    wanted = cells if check is None else check
    given = _common(wanted, given)
    for cell in wanted:
        check_runnable(cell.config, given)
    plan = {
        **kind,
        "cells": [
            {
                "group": cell.group,
                "label": cell.label,
                "seed": cell.seed,
                "out": str(cell.out.relative_to(out)),
                "wanted": cell in wanted,
                "config": cell.config.model_dump(mode="json"),
            }
            for cell in cells
        ],
    }
    try:
        appear(out, {layout.PLAN: _text(plan)})
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror})") from None


def want_cells(out: Path, cells: Sequence[Cell]) -> None:
    """Add cells of the plan to those that `isfl resume` runs."""
    from isfl.experiment.run import check_runnable

    given = _common(cells, NOTHING)
    for cell in cells:
        check_runnable(cell.config, given)
    plan = json.loads((out / layout.PLAN).read_text(encoding="utf-8"))
    names = {str(cell.out.relative_to(out)) for cell in cells}
    for row in plan["cells"]:
        row["wanted"] = row["wanted"] or row["out"] in names
    with told_when_full(out):
        write_whole(out / layout.PLAN, _text(plan))


def _text(plan: dict[str, Any]) -> bytes:
    return (json.dumps(plan, indent=2) + "\n").encode()


def planned_cells(out: Path, *, wanted: bool = False) -> tuple[dict[str, Any], list[Cell]]:
    """Return the plan that `begin_cells` wrote, and its cells; with `wanted`, only those requested so far."""
    file = out / layout.PLAN
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
        plan["command"], plan["title"]
        cells = [
            Cell(
                row["group"],
                row["label"],
                row["seed"],
                config_from(row["config"], str(file)),
                out / row["out"],
            )
            for row in plan["cells"]
            if row["wanted"] or not wanted
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    if not cells:
        raise UserError(f"{file}: plans no cells; start again in another directory")
    return plan, cells


def run_cells(
    cells: Sequence[Cell], jobs: int | None, watch: Callable[[Sequence[Cell]], None], given: Given = NOTHING
) -> None:
    """Run the unfinished cells, `jobs` at a time (default: one per core), and the last ones with all cores each.

    No core waits for long: when a worker has nothing left to do, the cells that still run stop after their round, and
    each is resumed with all processes. Results do not depend on how many work on a run. Runs of the same data share it
    in memory.
    """
    for cell in cells:
        _refuse_other(cell.config, cell.out)
    processes = jobs or cores()
    unfinished = [cell for cell in cells if not cell.finished]
    work = [(cell.config.model_dump_json(), str(cell.out)) for cell in unfinished]
    given = _common(unfinished, given)
    if len(work) >= processes > 1:
        # Forked where that is safe: spawned workers would import a caller's script that has no `__main__` guard.
        method = start_method(devices(1)[0])
        idle = get_context(method).Event()
        pool = WorkerPool(processes, _cell_worker, (given, idle), method=method)
        try:
            for done, _ in enumerate(pool.run(work, lambda: watch(cells)), start=1):
                if len(work) - done < processes:
                    idle.set()
        finally:
            pool.close()
    for cell in cells:
        if not cell.finished:
            run_or_resume(cell.config.model_dump_json(), str(cell.out), lambda line: watch(cells), processes, given)
    watch(cells)


def _common(cells: Sequence[Cell], given: Given) -> Given:
    """Add the data of the first of several runs; the others use it if they name the same."""
    return with_data(cells[0].config, given) if len(cells) > 1 else given


def seconds_left(cells: Sequence[Cell], jobs: int) -> float | None:
    """Return how long the rounds that are left will take with `jobs` at a time; None before the first round is done.

    A run goes on as it went so far; one that has not begun takes as long per round as the mean of the others.
    """
    walls = {cell.out: [line["seconds"]["wall"] for line in cell.lines] for cell in cells}
    every = [seconds for own in walls.values() for seconds in own]
    if not every:
        return None
    mean = sum(every) / len(every)
    left = 0.0
    for cell in cells:
        own = walls[cell.out]
        left += (cell.config.training.rounds - len(own)) * (sum(own) / len(own) if own else mean)
    return left / min(jobs, max(1, len(cells)))


class NewLines:
    """The lines that runs, perhaps in other processes, have written since the last look."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = cells
        self._seen = {cell.out: len(cell.lines) for cell in cells}

    def read(self) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Yield every new line once, with the cell it belongs to; the lines of a cell come in order."""
        for cell in self._cells:
            if self._seen[cell.out] < cell.config.training.rounds:
                for line in cell.lines[self._seen[cell.out] :]:
                    self._seen[cell.out] = line["round"]
                    yield cell, line


def _cell_worker(number: int, given: Given, idle: Event) -> Handler:
    return partial(_run_until, given=given, idle=idle)


class _Stop(BaseException):
    """Ends a run after its round, as Ctrl-C does."""


def _run_until(config: str, out: str, given: Given, idle: Event) -> None:
    """Run a cell, or stop it after a round with `idle` set, unless only its last round is left."""
    rounds = Config.model_validate_json(config).training.rounds

    def check(line: dict[str, Any]) -> None:
        if idle.is_set() and line["round"] < rounds - 1:
            raise _Stop

    with suppress(_Stop):
        run_or_resume(config, out, check, given=given)


def run_or_resume(
    config: str,
    out: str,
    on_round: Callable[[dict[str, Any]], None] = lambda line: None,
    workers: int = 1,
    given: Given = NOTHING,
) -> None:
    """Run one cell, or resume it."""
    from isfl.experiment.run import LocalHost, resume, run

    settings, path = Config.model_validate_json(config), Path(out)
    if path.exists():
        _refuse_other(settings, path)
        resume(path, on_round, LocalHost(workers), given=given)
    else:
        run(settings, path, on_round, LocalHost(workers), given=given)


def _refuse_other(config: Config, out: Path) -> None:
    """Refuse a directory that holds another run than planned; keys that its version did not have are defaults."""
    if out.exists() and config_from(RunDirectory.open(out).config, str(out)) != config:
        raise UserError(f"{out}: holds a run of another configuration than planned; move it away")
