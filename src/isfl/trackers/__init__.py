"""Trackers: report the rounds of a run elsewhere as they happen.

A tracker is any object with `begin`, `on_round` and `end`. Each works in a thread of its own: the run never waits for
one, and one that fails is told once and dropped. The run directory stays the truth; a tracker gets a copy.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from isfl.errors import UserError

if TYPE_CHECKING:
    from isfl.experiment.cells import Cell
    from isfl.experiment.config import Config

PATIENCE = 10.0
"""Seconds that trackers have at the end for what they have not done yet."""


class Tracker(Protocol):
    """What hears of one run. A resumed run begins again, with the round it goes on with."""

    def begin(self, config: Mapping[str, Any], directory: Path) -> None:
        """Before the first round: the configuration as resolved, and the run directory."""

    def on_round(self, line: Mapping[str, Any]) -> None:
        """After every round: its line of `metrics.jsonl`."""

    def end(self) -> None:
        """After the last round, or when the run is stopped."""


def factory_named(name: str) -> Callable[[], Tracker]:
    """`tensorboard`, or `module:function` of the user's: called without arguments, it gives a tracker."""
    if name == "tensorboard":
        try:
            from isfl.trackers.tensorboard import TensorBoard
        except ImportError:
            raise UserError("--track tensorboard needs TensorBoard; pip install 'isfl[tensorboard]'") from None
        return TensorBoard
    if ":" not in name:
        raise UserError(f"--track {name}: choose tensorboard, or give module:function for a tracker of your own")
    from isfl.data.own import call, resolve

    return partial(_checked, partial(call, resolve(name, "--track"), f"--track {name}"), name)


def _checked(make: Callable[[], Any], name: str) -> Tracker:
    tracker: Tracker = make()
    if not all(callable(getattr(tracker, method, None)) for method in ("begin", "on_round", "end")):
        raise UserError(f"--track {name}: it gave a {type(tracker).__name__} without begin, on_round and end")
    return tracker


class _Listener:
    """One tracker of one run in its thread; what is said to it waits in a queue."""

    def __init__(self, name: str, make: Callable[[], Tracker]) -> None:
        self.name = name
        self._make = make
        self._failure: BaseException | None = None
        self._calls: SimpleQueue[Callable[[Tracker], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def say(self, call: Callable[[Tracker], None]) -> None:
        """Call it in the thread, after all that was said before; nothing happens once it has failed."""
        self._tell_failure()
        if self._thread.is_alive():
            self._calls.put(call)

    def finish(self) -> None:
        """Nothing more will be said."""
        self._calls.put(lambda tracker: tracker.end())
        self._calls.put(None)

    def wait(self, until: float) -> None:
        """For all it has not done yet, up to a moment of `time.monotonic`."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._failure = TimeoutError(f"still busy after {PATIENCE:g} s")
        self._tell_failure()

    def _work(self) -> None:
        try:
            tracker = self._make()
            while (call := self._calls.get()) is not None:
                call(tracker)
        except BaseException as error:  # whatever it is, it must not reach the run
            self._failure = error

    def _tell_failure(self) -> None:
        if self._failure is not None:
            what = f"{type(self._failure).__name__}: {self._failure}".splitlines()[0]
            warnings.warn(f"tracker {self.name} failed and is dropped ({what})", stacklevel=4)
            self._failure = None


class Tracking:
    """The trackers of one run or of many."""

    def __init__(self, names: Sequence[str]) -> None:
        """Every name is tried at once: a wrong one is told before anything runs."""
        self._factories = {name: factory_named(name) for name in names}
        self._made = {name: make() for name, make in self._factories.items()}
        self._listeners: dict[Path, list[_Listener]] = {}
        self._finished: list[_Listener] = []

    def __bool__(self) -> bool:
        return bool(self._factories)

    def on_round(self, config: Config, directory: Path, line: Mapping[str, Any]) -> None:
        """Hand a round on; the first of a run begins its trackers, the last ends them."""
        if directory not in self._listeners:
            settings = config.model_dump(mode="json")
            self._listeners[directory] = [self._listener(name) for name in self._factories]
            for listener in self._listeners[directory]:
                listener.say(lambda tracker: tracker.begin(settings, directory))
        for listener in self._listeners[directory]:
            listener.say(lambda tracker: tracker.on_round(line))
        if line["round"] == config.training.rounds:
            self._finish(directory)

    def _listener(self, name: str) -> _Listener:
        """The first run gets the tracker that was made to try the name."""
        made = self._made.pop(name, None)
        return _Listener(name, self._factories[name] if made is None else lambda: made)

    def close(self) -> None:
        """End what was not ended, and wait for all."""
        for directory in self._listeners:
            self._finish(directory)
        until = time.monotonic() + PATIENCE
        for listener in self._finished:
            listener.wait(until)

    def _finish(self, directory: Path) -> None:
        listeners, self._listeners[directory] = self._listeners[directory], []
        for listener in listeners:
            listener.finish()
        self._finished += listeners


@contextmanager
def tracked(
    tracking: Tracking, config: Config, directory: Path, on_round: Callable[[dict[str, Any]], None]
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """`on_round`, and the trackers hear of each round as well."""

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
    """The same for runs in other processes: their new lines are read where `watch` looks."""
    heard = {cell.out: len(cell.lines) for cell in cells}

    def both(current: Sequence[Cell]) -> None:
        watch(current)
        for cell in current if tracking else ():
            if heard[cell.out] < cell.config.training.rounds:
                for line in cell.lines[heard[cell.out] :]:
                    tracking.on_round(cell.config, cell.out, line)
                    heard[cell.out] = line["round"]

    try:
        yield both
    finally:
        tracking.close()
