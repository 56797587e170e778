"""The protocol between contestant and harness: report ready, wait for a line, run a round, report it.

The harness looks at the CPU time between its line and the report, so nothing may run outside of them.
Only the standard library: every environment can import it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version


class Clock:
    def __init__(self, *packages: str) -> None:
        self._packages = packages
        self._round = 0
        self._began = 0.0

    def ready(self) -> None:
        """Report that setup is done, with the versions in use."""
        self._say({"versions": {package: version(package) for package in self._packages}})

    def begin(self, forward: Callable[[str], object] | None = None) -> None:
        """Wait until the harness requests a round; `forward` passes its line on to helpers."""
        line = sys.stdin.readline()
        if not line:
            raise SystemExit("the harness has gone")
        if forward is not None:
            forward(line)
        self._began = time.perf_counter()

    def end(self, images: int, loss: float) -> None:
        seconds = time.perf_counter() - self._began
        self._say({"round": self._round, "seconds": seconds, "images": images, "loss": loss})
        self._round += 1

    def _say(self, what: object) -> None:
        print(json.dumps(what), flush=True)
