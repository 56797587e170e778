"""Callbacks: the caller's functions, called in the caller's process with the record of each round as it finishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from isfl.api.records import Record, metrics_record
from isfl.experiment.cells import Cell, NewLines
from isfl.experiment.run import OnRound

Callback = Callable[[Record], None]


def after_each_round(callbacks: Sequence[Callback]) -> OnRound:
    """Return the function that a run calls with each line of its metrics."""
    return lambda line: _call(callbacks, {}, line)


def as_runs_grow(callbacks: Sequence[Callback], cells: Sequence[Cell]) -> Callable[[Sequence[Cell]], None]:
    """Return a function that reports the rounds that these runs have finished since it was last called."""
    lines = NewLines(cells)

    def watch(current: Sequence[Cell]) -> None:
        for cell, line in lines.read() if callbacks else ():
            _call(callbacks, {"scheme": cell.label, "seed": cell.seed}, line)

    return watch


def _call(callbacks: Sequence[Callback], which: Record, line: Mapping[str, Any]) -> None:
    """Call each function with a record of its own; an exception keeps its type and says that the run can go on."""
    for callback in callbacks:
        try:
            callback({**which, **metrics_record(line)})
        except Exception as error:
            error.add_note(f"isfl: a callback raised this after round {line['round']}; isfl.resume runs the rest")
            raise
