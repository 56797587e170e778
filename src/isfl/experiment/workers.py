"""Independent jobs in worker processes that never outlive their parent.

Workers are started once and handed one job at a time. An error in a job ends the whole at once; so does Ctrl-C, which
reaches the parent alone. A worker whose parent is gone ends itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from isfl.errors import UserError, plain_warnings

POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0


def run_jobs(
    function: Callable[..., None], jobs: Sequence[tuple[Any, ...]], workers: int, tick: Callable[[], None]
) -> None:
    """Call `function(*job)` for every job, `workers` at a time; `tick` is called every half second and at the end.

    `function` must be importable by name, and jobs made of plain values. A `UserError` in a job is raised here as
    one; anything else as a RuntimeError with the worker's traceback.
    """
    context = multiprocessing.get_context("spawn")
    waiting = list(jobs)
    connections: dict[Connection, Any] = {}
    try:
        for _ in range(min(workers, len(jobs))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, function, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            ours.send(waiting.pop(0))
            connections[ours] = process
        while connections:
            for connection in wait(list(connections), timeout=POLL_SECONDS):
                assert isinstance(connection, Connection)
                _raise_failure(connection, connections[connection])
                if waiting:
                    connection.send(waiting.pop(0))
                else:
                    connection.close()
                    connections.pop(connection).join(GRACE_SECONDS)
            tick()
    finally:
        for process in connections.values():
            process.terminate()
        for process in connections.values():
            process.join(GRACE_SECONDS)


def _raise_failure(connection: Connection, process: Any) -> None:
    try:
        failure = connection.recv()
    except EOFError:
        process.join(GRACE_SECONDS)
        raise RuntimeError(f"a worker process ended unexpectedly (exit code {process.exitcode})") from None
    if failure is not None:
        kind, text = failure
        raise UserError(text) if kind == "user" else RuntimeError(f"a worker process failed:\n{text}")


def _work(connection: Connection, function: Callable[..., None], parent: int) -> None:
    import traceback

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what becomes of us
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    plain_warnings()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            function(*job)
            connection.send(None)
        except UserError as error:
            connection.send(("user", str(error)))
        except BaseException:
            connection.send(("bug", traceback.format_exc()))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
