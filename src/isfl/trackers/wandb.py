"""Report rounds to Weights & Biases: https://wandb.ai, or files for `wandb sync` where nobody is logged in."""

from __future__ import annotations

import os
import secrets
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isfl.report.clients import MEASURES
from isfl.trackers.content import (
    HEADINGS,
    Tracked,
    client_rows,
    remember,
    report_in,
    run_name,
    scalars,
    tracked_so_far,
    untracked,
)

if TYPE_CHECKING:
    from wandb import Run

EXTRA = "wandb"
DIRECTORY = "wandb"
PROJECT = "isfl"
MOST_ROWS = 10_000
"""A logged table shows no more."""


class WeightsAndBiases:
    """Log scalars with the round as step. A resumed run goes on in the same W&B run, after its last round there.

    The environment variables of W&B (`WANDB_PROJECT`, `WANDB_ENTITY`, `WANDB_MODE`) apply.
    """

    def __init__(self) -> None:
        import wandb

        self._wandb = wandb
        self._mode = _mode()
        self._directory = Path()
        self._rounds = 0
        self._tracked = Tracked("", 0)
        self._run: Run | None = None

    def begin(self, config: Mapping[str, Any], directory: Path) -> None:
        self._tracked = tracked_so_far(directory / DIRECTORY) or Tracked(secrets.token_hex(4), 0)
        self._directory, self._rounds = directory, config["training"]["rounds"]
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run_name(directory),
            id=self._tracked.id,
            resume="allow",
            dir=directory,
            config=dict(config),
            mode=self._mode,
            reinit="create_new",  # a comparison has several at a time
            settings=self._wandb.Settings(silent=True, console="off"),  # the terminal shows the run's progress
        )

    def on_round(self, line: Mapping[str, Any]) -> None:
        assert self._run is not None, "begin comes first"
        for each in untracked(self._directory, line, self._tracked.round):
            self._run.log(dict(scalars(each, without=MEASURES)), step=each["round"])
            self._tracked = replace(self._tracked, round=each["round"])
            remember(self._directory / DIRECTORY, self._tracked)

    def end(self) -> None:
        if self._run is None:
            return
        rows = [list(row) for row in client_rows(self._directory, MOST_ROWS)]
        self._run.log({"clients": self._wandb.Table(columns=list(HEADINGS), data=rows)}, step=self._tracked.round)
        artifact = self._wandb.Artifact(f"report-{self._run.id}", type="report")
        with tempfile.TemporaryDirectory() as place:
            artifact.add_file(str(report_in(Path(place), self._directory)))
            self._run.log_artifact(artifact)
            self._run.finish(exit_code=0 if self._tracked.round == self._rounds else 1)


TRACKER = WeightsAndBiases


@cache  # one warning per process
def _mode() -> Literal["offline"] | None:
    """Return offline, with a warning, where nobody is logged in; None leaves the choice to W&B."""
    import wandb

    if os.environ.get("WANDB_MODE"):
        return None
    try:
        found, why = wandb.login(prompt=False, verify=False), "nobody is logged in"
    except wandb.Error as error:
        found, why = False, str(error)
    if found:
        return None
    warnings.warn(
        f"tracker wandb writes to the run directory only ({why}): run wandb login before, or wandb sync afterwards",
        stacklevel=2,
    )
    return "offline"
