"""A thread per tracker, so that a run never waits for one and never fails with one."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread

from isfl.errors import summary, user_traceback
from isfl.trackers.base import Tracker

PATIENCE = 60.0
"""Seconds that all trackers together have at the end to finish their queues, with the upload of a report."""


class TrackerThread:
    """Calls one tracker of one run from a queue, in a thread; the first failure ends it with a warning."""

    def __init__(self, name: str, make: Callable[[], Tracker]) -> None:
        self.name = name
        self._make = make
        self._failure: BaseException | None = None
        self._calls: SimpleQueue[Callable[[Tracker], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[Tracker], None]) -> None:
        """Queue a call; it is dropped once the tracker has failed."""
        self._warn_of_failure()
        if self._thread.is_alive():
            self._calls.put(call)

    def finish(self) -> None:
        """Queue the tracker's `end`, the last call."""
        self._calls.put(lambda tracker: tracker.end())
        self._calls.put(None)

    def join(self, until: float) -> None:
        """Wait for the queue to empty, up to a moment of `time.monotonic`."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._failure = TimeoutError(f"still busy after {PATIENCE:g} s")
        self._warn_of_failure()

    def _work(self) -> None:
        try:
            tracker = self._make()
            while (call := self._calls.get()) is not None:
                call(tracker)
        except BaseException as error:  # any failure of a tracker stays in its thread
            self._failure = error

    def _warn_of_failure(self) -> None:
        if self._failure is not None:
            what, frames = summary(self._failure), user_traceback(self._failure)
            warnings.warn(f"tracker {self.name} failed and is dropped ({what})\n{frames}".rstrip(), stacklevel=4)
            self._failure = None


def join_all(threads: Sequence[TrackerThread]) -> None:
    """Wait for finished trackers, at most `PATIENCE` seconds in all."""
    until = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(until)
