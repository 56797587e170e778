"""A pool of worker processes: each builds its handler once and then does one job at a time.

A worker that dies is replaced and its job is repeated; jobs are functions of their arguments, so the result is the
same. An error in a job stops all work at once; so does Ctrl-C, which only the parent handles. A worker exits if its
parent is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, assert_never

from isfl.errors import UserError, as_user_error, plain_warnings

POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0

Handler = Callable[..., Any]
"""Called with the parts of a job, returns its result."""


@dataclass(frozen=True)
class _Done:
    result: Any


@dataclass(frozen=True)
class _Mistake:
    """A job failed because of the user's input or code; `traceback` is all of it, for `isfl --debug`."""

    error: UserError
    traceback: str


@dataclass(frozen=True)
class _Bug:
    traceback: str


_Reply = _Done | _Mistake | _Bug


class WorkerError(Exception):
    """The traceback of an error in a worker process, as its cause in this process."""


@dataclass
class _Worker:
    number: int
    process: BaseProcess
    connection: Connection
    job: int | None = None


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool:
    """`size` processes, each of which calls `build(number, *arguments)` for its handler.

    `retries` is how often a job may be repeated after its worker died. `method` is how processes start: with "spawn"
    they are empty, so `build` must be importable by name and `arguments` are pickled; with "fork" they start in
    milliseconds with everything this process has, and share its memory until one of them writes to it.
    """

    def __init__(
        self,
        size: int,
        build: Callable[..., Handler],
        arguments: tuple[Any, ...] = (),
        *,
        retries: int = 0,
        method: Literal["spawn", "fork"] = "spawn",
    ) -> None:
        self._context: Any = multiprocessing.get_context(method)
        self._build, self._arguments, self._retries = build, arguments, retries
        self.workers: list[_Worker] = []
        self._close = weakref.finalize(self, _end, self.workers)
        self.workers += [self._start(number) for number in range(size)]

    def run(
        self, jobs: Sequence[tuple[Any, ...]], tick: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, Any, int]]:
        """Yield (number of the job, its result, number of the worker) as jobs finish; they start in the order given.

        A worker gets its next job only after its result was taken. `tick` is called at least twice a second.
        """
        if jobs and not self.workers:
            raise RuntimeError("the pool has been closed")
        waiting, failures = list(range(len(jobs)))[::-1], dict.fromkeys(range(len(jobs)), 0)
        try:
            for worker in list(self.workers):
                self._hand_out(worker, waiting, jobs)
            while any(worker.job is not None for worker in self.workers):
                busy = {worker.connection: worker for worker in self.workers if worker.job is not None}
                for connection in wait(list(busy), timeout=POLL_SECONDS):
                    worker = busy[connection]  # type: ignore[index]
                    number = worker.job
                    assert number is not None
                    try:
                        reply: _Reply = worker.connection.recv()
                    except (EOFError, OSError):
                        failures[number] += 1
                        worker = self._replace(worker, give_up=failures[number] > self._retries)
                        waiting.append(number)
                    else:
                        worker.job = None
                        yield number, _result_of(reply), worker.number
                    self._hand_out(worker, waiting, jobs)
                tick()
        except BaseException:
            self.close()  # the results of running jobs are not wanted any more
            raise

    def close(self) -> None:
        self._close()

    def _start(self, number: int) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_work, args=(theirs, os.getpid(), self._build, number, self._arguments), daemon=True
        )
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the worker ignores it
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return _Worker(number, process, ours)

    def _hand_out(self, worker: _Worker, waiting: list[int], jobs: Sequence[tuple[Any, ...]]) -> None:
        if not waiting:
            return
        worker.job = waiting.pop()
        with suppress(OSError):  # if the worker is gone, reading from it fails next
            worker.connection.send(jobs[worker.job])

    def _replace(self, worker: _Worker, give_up: bool) -> _Worker:
        worker.connection.close()
        worker.process.join(GRACE_SECONDS)
        if give_up:
            raise UserError(
                f"a worker process ended unexpectedly (exit code {worker.process.exitcode}), {self._retries + 1} times "
                "on the same job; if memory is short, use fewer --jobs; isfl resume continues a run that began"
            )
        new = self._start(worker.number)
        self.workers[self.workers.index(worker)] = new
        return new


def _result_of(reply: _Reply) -> Any:
    match reply:
        case _Done(result):
            return result
        case _Mistake(error, text):
            raise error from WorkerError(f"in a worker process:\n{text}")
        case _Bug(text):
            raise RuntimeError(f"a worker process failed:\n{text}")
        case _:
            assert_never(reply)


def _end(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.connection.close()
        worker.process.terminate()
    for worker in workers:
        worker.process.join(GRACE_SECONDS)
        if worker.process.is_alive():
            worker.process.kill()
    workers.clear()


def _work(
    connection: Connection, parent: int, build: Callable[..., Handler], number: int, arguments: tuple[Any, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _default_warnings()
    handler: Handler | None = None
    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            return
        try:
            handler = handler or build(number, *arguments)
            reply: _Reply = _Done(handler(*job))
        except Exception as error:
            reply = _failure(error)
        try:
            connection.send(reply)
        except OSError:
            return  # the parent is gone
        except MemoryError:
            os._exit(1)  # without a traceback: the parent starts another worker and says what happened in the end


def _failure(error: Exception) -> _Reply:
    """Return an error as a reply; without memory even for its traceback, without."""
    try:
        mistake, text = as_user_error(error), traceback.format_exc()
    except MemoryError:
        return _Mistake(UserError("not enough memory in a worker process; use fewer --jobs"), "")
    return _Bug(text) if mistake is None else _Mistake(mistake, text)


def _default_warnings() -> None:
    """Show warnings as one line, with Python's default filters: a forked worker must not inherit `-W error`."""
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    plain_warnings()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
