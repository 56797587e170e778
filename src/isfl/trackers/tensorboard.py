"""Report rounds as TensorBoard scalars, in the directory `tensorboard` of the run: `tensorboard --logdir runs`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isfl.trackers.content import scalars

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

EXTRA = "tensorboard"
DIRECTORY = "tensorboard"


class TensorBoard:
    """Write scalars with the round as step. A resumed run replaces what was written of the rounds it repeats."""

    def __init__(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._new_writer = SummaryWriter
        self._directory = Path()
        self._config = ""
        self._writer: SummaryWriter | None = None

    def begin(self, config: Mapping[str, Any], directory: Path) -> None:
        self._directory = directory / DIRECTORY
        self._config = json.dumps(config, indent=2)

    def on_round(self, line: Mapping[str, Any]) -> None:
        if self._writer is None:
            first = line["round"]
            self._writer = self._new_writer(str(self._directory), purge_step=first)
            self._writer.add_text("config", f"```json\n{self._config}\n```", first)
        for tag, value in scalars(line):
            self._writer.add_scalar(tag, value, line["round"])
        self._writer.flush()  # so that a viewer sees the round now

    def end(self) -> None:
        if self._writer is not None:
            self._writer.close()


TRACKER = TensorBoard
