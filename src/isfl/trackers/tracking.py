"""The trackers of a command: which runs they report, and when each begins and ends.

The run directory stays the truth; a tracker gets a copy of each line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isfl.trackers import factory_named
from isfl.trackers.thread import TrackerThread, join_all

if TYPE_CHECKING:
    from isfl.experiment.cells import Cell
    from isfl.problem.config import Config


class Tracking:
    """The trackers of one run or of several; each run has its own."""

    def __init__(self, names: Sequence[str]) -> None:
        """Make one tracker of each name at once, so that a wrong name fails before anything runs."""
        self._factories = {name: factory_named(name) for name in names}
        self._made = {name: make() for name, make in self._factories.items()}
        self._threads: dict[Path, list[TrackerThread]] = {}
        self._finished: list[TrackerThread] = []

    def __bool__(self) -> bool:
        return bool(self._factories)

    def on_round(self, config: Config, directory: Path, line: Mapping[str, Any]) -> None:
        """Report a round; the first round of a run begins its trackers and the last ends them."""
        if directory not in self._threads:
            settings = config.model_dump(mode="json")
            self._threads[directory] = [self._start(name) for name in self._factories]
            for thread in self._threads[directory]:
                thread.submit(lambda tracker: tracker.begin(settings, directory))
        for thread in self._threads[directory]:
            thread.submit(lambda tracker: tracker.on_round(line))
        if line["round"] == config.training.rounds:
            self._finish(directory)

    def _start(self, name: str) -> TrackerThread:
        """Start a thread; the first run gets the tracker that was made to check the name."""
        made = self._made.pop(name, None)
        return TrackerThread(name, self._factories[name] if made is None else lambda: made)

    def close(self) -> None:
        """End the trackers that have not ended, and wait for all."""
        for directory in self._threads:
            self._finish(directory)
        join_all(self._finished)

    def _finish(self, directory: Path) -> None:
        threads, self._threads[directory] = self._threads[directory], []
        for thread in threads:
            thread.finish()
        self._finished += threads


@contextmanager
def tracked(
    tracking: Tracking, config: Config, directory: Path, on_round: Callable[[dict[str, Any]], None]
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that calls `on_round` and reports the round to the trackers."""

    def both(line: dict[str, Any]) -> None:
        on_round(line)
        tracking.on_round(config, directory, line)

    try:
        yield both
    finally:
        tracking.close()


@contextmanager
def tracked_cells(
    tracking: Tracking, cells: Sequence[Cell], watch: Callable[[Sequence[Cell]], None]
) -> Iterator[Callable[[Sequence[Cell]], None]]:
    """Yield a function that calls `watch` and reports new lines of runs in other processes to the trackers."""
    from isfl.experiment.cells import NewLines

    lines = NewLines(cells)

    def both(current: Sequence[Cell]) -> None:
        watch(current)
        for cell, line in lines.read() if tracking else ():
            tracking.on_round(cell.config, cell.out, line)

    try:
        yield both
    finally:
        tracking.close()
