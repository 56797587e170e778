"""What a tracker is: any object with `begin`, `on_round` and `end`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    """Reports one run. A resumed run has a new tracker, which begins with the round that the run resumes with."""

    def begin(self, config: Mapping[str, Any], directory: Path) -> None:
        """Start before the first round, with the resolved configuration and the run directory."""

    def on_round(self, line: Mapping[str, Any]) -> None:
        """Report a round; `line` is its line of `metrics.jsonl`."""

    def end(self) -> None:
        """Finish after the last round, or when the run is stopped."""
