"""The tracker for MLflow, on a local database, with the real library: what it writes is read back with its client."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isfl.errors import UserError
from isfl.report.reading import flat
from isfl.trackers.content import scalars
from isfl.trackers.tracking import Tracking
from tests.tracked import clients_of, lose_the_last_round, metrics, resume_tracked, run_tracked, stop_in_round_2

mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install 'isfl[mlflow]'")
pytestmark = [
    pytest.mark.timeout(250),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),  # MLflow's use of SQLAlchemy
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database for all tests: making one takes longer than using it."""
    place = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/mlflow.db")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
        patch.chdir(place)  # MLflow puts artifacts into the current directory
        yield place


@pytest.fixture(scope="module")
def finished(store: Path) -> Path:
    return run_tracked("mlflow", store / "isfl" / "seed-0")


def tracked_run(out: Path) -> Any:
    """Return the MLflow run that a run directory belongs to."""
    return mlflow.MlflowClient().get_run(json.loads((out / "mlflow/tracked.json").read_text())["id"])


def history(run: Any, tag: str) -> dict[int, float]:
    """Return a metric by step; each step must be there once."""
    found = mlflow.MlflowClient().get_metric_history(run.info.run_id, tag)
    by_step = {one.step: one.value for one in found}
    assert len(found) == len(by_step), f"{tag} has a step twice"
    return by_step


def artifact(run: Any, name: str, place: Path) -> str:
    path = mlflow.MlflowClient().download_artifacts(run.info.run_id, name, str(place))
    return Path(path).read_text(encoding="utf-8")


def test_every_number_of_every_round_is_a_metric(finished: Path) -> None:
    run, lines = tracked_run(finished), metrics(finished)
    expected = {tag for line in lines for tag, _ in scalars(line) if not tag.startswith("client_")}
    assert run.data.metrics.keys() == expected and len(expected) > 20
    for tag in ("accuracy_standard", "gradient_evaluations/training", "recall/3"):
        values = [dict(scalars(line))[tag] for line in lines]
        assert history(run, tag) == pytest.approx(dict(zip((1, 2, 3), values, strict=True)))


def test_the_configuration_is_there_as_parameters_and_as_a_file(finished: Path, tmp_path: Path) -> None:
    run, written = tracked_run(finished), json.loads((finished / "config.json").read_text())
    assert run.data.params == {key: str(value) for key, value in flat(written).items()}
    assert json.loads(artifact(run, "config.json", tmp_path)) == written
    assert (run.info.run_name, run.info.status) == ("isfl/seed-0", "FINISHED")
    assert mlflow.MlflowClient().get_experiment(run.info.experiment_id).name == "isfl"


def test_the_clients_are_a_table_and_the_report_is_an_artifact(finished: Path, tmp_path: Path) -> None:
    run = tracked_run(finished)
    heading, *rows = csv.reader(artifact(run, "clients.csv", tmp_path).splitlines())
    assert heading == ["round", "client", "accuracy", "update_norm", "drift"]
    assert [[float(cell) for cell in row] for row in rows] == clients_of(finished)
    page = artifact(run, "report.html", tmp_path)
    assert page.startswith("<!doctype html>") and "After 3 of 3 rounds" in page


def test_a_resumed_run_goes_on_in_the_same_tracked_run(store: Path) -> None:
    """The run was stopped before its second round was tracked: the resumed run reports that round as well."""
    out = store / "stopped"
    with pytest.raises(KeyboardInterrupt):
        run_tracked("mlflow", out, stop_in_round_2)
    before = tracked_run(out)
    assert before.info.status == "KILLED" and history(before, "train_loss").keys() == {1}
    resume_tracked("mlflow", out)
    after = tracked_run(out)
    assert after.info.run_id == before.info.run_id and after.info.status == "FINISHED"
    assert list(history(after, "train_loss").values()) == pytest.approx([line["train_loss"] for line in metrics(out)])


def test_a_repeated_round_is_not_reported_twice(store: Path) -> None:
    out = run_tracked("mlflow", store / "repeated")
    lose_the_last_round(out)
    resume_tracked("mlflow", out)
    assert history(tracked_run(out), "train_loss").keys() == {1, 2, 3}


def test_a_store_without_the_run_gets_a_new_one_with_all_rounds(store: Path) -> None:
    """For instance another server, or a run that was removed."""
    out = run_tracked("mlflow", store / "moved")
    (out / "mlflow/tracked.json").write_text(json.dumps({"id": "0" * 32, "round": 3}))
    lose_the_last_round(out)
    resume_tracked("mlflow", out)
    assert history(tracked_run(out), "train_loss").keys() == {1, 2, 3}


@pytest.mark.parametrize("module", ["mlflow", "sqlalchemy"])
def test_without_the_libraries_the_message_names_the_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=r"--track mlflow: .*pip install 'isfl\[mlflow\]'"):
        Tracking(["mlflow"])


def test_a_server_that_does_not_answer_is_one_warning_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.warns(UserWarning, match="tracker mlflow failed and is dropped") as warned:
        run_tracked("mlflow", tmp_path / "run")
    assert len(warned) == 1 and len(metrics(tmp_path / "run")) == 3
    assert (tmp_path / "run/model.safetensors").exists()


def test_a_failure_in_mid_run_is_one_warning_and_the_run_goes_on(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def fail_in_the_second_round(self: Any, run_id: str, **content: Any) -> None:
        batches.append(content)
        if sum("metrics" in batch for batch in batches) == 2:
            raise OSError("disk full")

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", fail_in_the_second_round)
    with pytest.warns(UserWarning, match=r"tracker mlflow failed and is dropped \(OSError: disk full\)") as warned:
        run_tracked("mlflow", store / "failing")
    assert len(warned) == 1 and len(metrics(store / "failing")) == 3
    assert json.loads((store / "failing/mlflow/tracked.json").read_text())["round"] == 1
