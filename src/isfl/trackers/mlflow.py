"""Report rounds to MLflow: to the store in `MLFLOW_TRACKING_URI`, else to `mlflow.db` in the current directory."""

from __future__ import annotations

import csv
import io
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from isfl import layout
from isfl.report.clients import MEASURES
from isfl.report.reading import flat
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
    from mlflow import MlflowClient

EXTRA = "mlflow"
DIRECTORY = "mlflow"
EXPERIMENT = "isfl"
CLIENTS = "clients.csv"
MOST_PARAMETERS, MOST_METRICS = 100, 1000
"""What MLflow takes in one request."""
LONGEST = 500
"""Characters of a parameter; the whole configuration is an artifact."""

_BEGINNING = Lock()
"""The first run of a comparison makes the database and the experiment; the others wait."""


class MLflow:
    """Log metrics with the round as step. A resumed run goes on in the same MLflow run, after its last round there.

    The environment variables of MLflow (`MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME`) apply.
    """

    def __init__(self) -> None:
        import mlflow

        import_module("sqlalchemy")  # MLflow's default store needs it, and its small package does not bring it

        self._mlflow = mlflow
        self._directory = Path()
        self._rounds = 0
        self._tracked = Tracked("", 0)

    def begin(self, config: Mapping[str, Any], directory: Path) -> None:
        self._directory, self._rounds = directory, config["training"]["rounds"]
        with _BEGINNING:
            # A client of its own: the run that `mlflow.start_run` sets would be shared with the caller.
            self._client: MlflowClient = self._mlflow.MlflowClient()
            known = tracked_so_far(directory / DIRECTORY)
            if known is not None and self._has(known.id):
                self._tracked = known
                self._client.update_run(known.id, status="RUNNING")
                return
            run = self._client.create_run(self._experiment(), run_name=run_name(directory))
        self._tracked = Tracked(run.info.run_id, 0)
        settings = [self._mlflow.entities.Param(key, str(value)[:LONGEST]) for key, value in flat(config).items()]
        for start in range(0, len(settings), MOST_PARAMETERS):
            self._client.log_batch(self._tracked.id, params=settings[start : start + MOST_PARAMETERS])
        self._client.log_dict(self._tracked.id, dict(config), layout.CONFIG)

    def on_round(self, line: Mapping[str, Any]) -> None:
        for each in untracked(self._directory, line, self._tracked.round):
            now = int(1000 * time.time())
            numbers = scalars(each, without=MEASURES)
            metrics = [self._mlflow.entities.Metric(tag, value, now, each["round"]) for tag, value in numbers]
            for start in range(0, len(metrics), MOST_METRICS):
                self._client.log_batch(self._tracked.id, metrics=metrics[start : start + MOST_METRICS])
            self._tracked = replace(self._tracked, round=each["round"])
            remember(self._directory / DIRECTORY, self._tracked)

    def end(self) -> None:
        text = io.StringIO()
        csv.writer(text).writerows([HEADINGS, *client_rows(self._directory)])
        self._client.log_text(self._tracked.id, text.getvalue(), CLIENTS)
        with tempfile.TemporaryDirectory() as place:
            self._client.log_artifact(self._tracked.id, str(report_in(Path(place), self._directory)))
        self._client.set_terminated(self._tracked.id, "FINISHED" if self._tracked.round == self._rounds else "KILLED")

    def _has(self, identifier: str) -> bool:
        """Return whether the tracking store has this run."""
        try:
            self._client.get_run(identifier)
        except self._mlflow.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        return True

    def _experiment(self) -> str:
        """Return the experiment's id; make the experiment if it is new."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)


TRACKER = MLflow
