"""The live page of a run: a separate process serves it on loopback and only reads the run directory."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from isfl import layout
from isfl.errors import UserError
from isfl.report.content import content_of
from isfl.report.page import as_json, page
from isfl.report.reading import FoundRun, Readers, find_runs, run_directories, under_way

LOOPBACK = "127.0.0.1"
DATA = "/data.json"
SHARE = 0.005
"""The largest share of one core spent on reading what has changed."""

Clock = Callable[[], float]


class Viewer:
    """The newest content of run directories, read again only when their files changed, and not too often."""

    def __init__(self, paths: Sequence[Path], clock: Clock = time.monotonic) -> None:
        self.paths, self._clock = paths, clock
        self._lock = threading.Lock()
        self._seen: object = None
        self._next = 0.0
        self._readers: Readers = {}
        self.runs: list[FoundRun] = []
        self.content: dict[str, Any] = {}
        self.tag = ""
        self.refresh()

    def refresh(self) -> None:
        """Read what is new, unless the last reading was too recent."""
        with self._lock:
            began = self._clock()
            if began < self._next or (seen := _fingerprint(self.paths)) == self._seen:
                return
            try:
                self.runs, refused = find_runs(self.paths, self._readers)
            except UserError:
                if not self.runs:
                    raise
                return  # the runs were removed: keep showing what was read last
            self.content, self._seen = content_of(self.runs, refused), seen
            self.tag = f'"{hashlib.sha256(as_json(self.content).encode()).hexdigest()[:16]}"'
            self._next = self._clock() + (self._clock() - began) / SHARE


def _fingerprint(paths: Sequence[Path]) -> object:
    """Return what changes when there is something new to show: the files of every run, and whether it is running."""
    names = (*layout.DESCRIPTION, *layout.GROWING, layout.MODEL)
    directories = [directory for path in paths for directory, _ in run_directories(path)]
    return [
        (directory, under_way(directory), [_state(directory / name) for name in names]) for directory in directories
    ]


def _state(file: Path) -> tuple[int, int] | None:
    try:
        state = file.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


@contextmanager
def served(viewer: Viewer, port: int) -> Iterator[str]:
    """Serve the page from a thread while the block lasts; yield its address."""
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), _handler(viewer))
    except OSError as error:
        raise UserError(
            f"--port {port}: cannot be listened on ({error.strerror}); leave it out to get a free one"
        ) from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def _handler(viewer: Viewer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            """Answer with the page or its data, to this machine alone (a name that resolves here is not enough)."""
            if self.headers.get("Host", "").partition(":")[0] not in (LOOPBACK, "localhost"):
                self._answer(403, "text/plain", b"only from this machine\n")
                return
            viewer.refresh()
            if self.path == "/":
                self._answer(200, "text/html; charset=utf-8", page(viewer.content, DATA).encode())
            elif self.path != DATA:
                self._answer(404, "text/plain", b"nothing here\n")
            elif self.headers.get("If-None-Match") == viewer.tag:
                self._answer(304, "application/json", b"")
            else:
                self._answer(200, "application/json", as_json(viewer.content).encode())

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            if code in (200, 304):
                self.send_header("ETag", viewer.tag)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: the terminal shows the run's progress."""

    return Handler


def follow(viewer: Viewer, on_round: Callable[[dict[str, Any]], None], every: float = 1.0) -> None:
    """Call `on_round` with the rounds of a single run, old and new, until it is finished or Ctrl-C ends it."""
    told = 0
    while True:
        viewer.refresh()
        (run,) = viewer.runs
        for line in run.lines[told:]:
            on_round(dict(line))
        told = len(run.lines)
        if run.finished:
            return
        time.sleep(every)
