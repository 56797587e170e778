"""isfl from Python: calls, their results, and the absence of side effects."""

from __future__ import annotations

import copy
import inspect
import json
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch

import isfl
from isfl.api import records
from isfl.experiment.run import run as run_core
from isfl.problem.problem import prepare
from tests.resumable import TINY, outcome

CONFIG: dict[str, Any] = {**TINY, "training": {**TINY["training"], "rounds": 2}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> isfl.Run:
    return isfl.run(CONFIG, out=tmp_path_factory.mktemp("runs") / "a", workers=1)


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A run of two rounds that was stopped after the first."""

    def stop(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        isfl.run(CONFIG, out=tmp_path / "stopped", workers=1, callbacks=[stop])
    return tmp_path / "stopped"


# ---------------------------------------------------------------- what to run


def test_a_configuration_can_be_a_file_a_dictionary_or_an_object(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('scheme = "fedavg"\n[training]\nrounds = 7\n', encoding="utf-8")
    raw = {"scheme": "fedavg", "training": {"rounds": 7}}
    for given in (file, str(file), raw, isfl.load_config(raw)):
        assert isfl.load_config(given) == isfl.load_config(raw)
        changed = isfl.load_config(given, ["training.rounds=3", "scheme.name=isfl"])
        assert (changed.training.rounds, changed.scheme.name) == (3, "isfl")


def test_nothing_at_all_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("", encoding="utf-8")
    assert isfl.load_config({}) == isfl.load_config(tmp_path / "empty.toml") == isfl.Config()
    run = isfl.run({}, ["training.rounds=1", "training.local_epochs=1"], out=tmp_path / "a", workers=1)
    assert run.finished and len({record["client"] for record in run.probabilities}) == 10


def test_overrides_do_not_change_what_was_passed_in() -> None:
    raw = copy.deepcopy(CONFIG)
    settings = isfl.load_config(raw)
    for given in (raw, settings):
        isfl.load_config(given, ["training.rounds=9", "scheme.sampling.floor=0.5"])
    assert raw == CONFIG and settings == isfl.load_config(CONFIG)


def test_a_mistake_names_the_key_and_what_would_be_right() -> None:
    with pytest.raises(isfl.UserError, match=r"^config: training\.round: unknown key; did you mean 'rounds'"):
        isfl.run({"training": {"round": 1}})
    with pytest.raises(isfl.UserError, match="no such file"):
        isfl.run("absent.toml")
    with pytest.raises(isfl.UserError, match="workers is 0"):
        isfl.run(CONFIG, workers=0)


# ---------------------------------------------------------------- runs


def test_a_run_from_python_is_that_of_the_command_line(finished: isfl.Run, tmp_path: Path) -> None:
    run_core(isfl.load_config(CONFIG), tmp_path / "b")
    assert outcome(finished.path) == outcome(tmp_path / "b")


def test_without_out_a_run_is_written_to_runs_under_its_file_or_scheme_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(
        'scheme = "fedavg"\n[split]\nclients = 2\nshard_size = 20\n[training]\nrounds = 1\n', encoding="utf-8"
    )
    paths = [isfl.run(given, workers=1).path for given in ("mine.toml", isfl.load_config("mine.toml"))]
    assert [path.parent.name for path in paths] == ["runs", "runs"]
    assert [path.name.split("-")[0] for path in paths] == ["mine", "fedavg"]


def test_records_of_a_run_are_flat_and_those_of_its_files(finished: isfl.Run) -> None:
    lines = [json.loads(line) for line in (finished.path / "metrics.jsonl").read_text().splitlines()]
    assert [record["round"] for record in finished.records] == [1, 2]
    for record, line in zip(finished.records, lines, strict=True):
        assert record["accuracy_standard"] == line["accuracy_standard"]
        assert record["seconds.wall"] == line["seconds"]["wall"]
        assert record["recall"] == line["recall"] and len(record["recall"]) == 10
        assert not any(isinstance(value, dict) for value in record.values())


def clients_seen(run: isfl.Run) -> list[tuple[int, int]]:
    """Return each round with the clients that it, or a round before, has chosen."""
    chosen = [set(record["participants"]) for record in run.records]
    return [(at + 1, k) for at in range(len(chosen)) for k in sorted(set().union(*chosen[: at + 1]))]


def test_probabilities_have_one_record_per_round_client_seen_and_class(finished: isfl.Run) -> None:
    records = finished.probabilities
    keys = [(record["round"], record["client"], record["class"]) for record in records]
    assert keys == [(r, k, c) for r, k in clients_seen(finished) for c in range(10)]
    assert {record["class_name"] for record in records if record["class"] == 0} == {"T-shirt"}
    line = json.loads((finished.path / "probabilities.jsonl").read_text().splitlines()[1])
    second = {(record["client"], record["class"]): record for record in records if record["round"] == 2}
    last = max(int(client) for client in line["probabilities"])
    assert second[last, 7]["probability"] == line["probabilities"][str(last)][7]
    measured = {client for (client, _), record in second.items() if record["lipschitz"] is not None}
    assert measured == {int(client) for client in line["lipschitz"]}


def test_metrics_are_a_dataframe_where_pandas_is_installed_and_else_the_records(
    finished: isfl.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not a dependency of isfl")
    metrics = finished.metrics
    assert isinstance(metrics, pandas.DataFrame)
    assert metrics["accuracy_standard"].to_list() == [record["accuracy_standard"] for record in finished.records]
    drawn = pandas.DataFrame(finished.probabilities).groupby(["round", "client"])["probability"].sum()
    assert drawn.to_list() == pytest.approx([1.0] * len(clients_seen(finished)))
    monkeypatch.setattr(records, "find_spec", lambda name: None)
    assert finished.metrics == finished.records and isinstance(finished.metrics, list)


def test_callbacks_get_the_records_of_the_run(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    run = isfl.run(CONFIG, ["training.rounds=1"], out=tmp_path / "a", workers=1, callbacks=[seen.append])
    assert seen == run.records


def test_an_exception_of_a_callback_is_the_callers_own_and_the_run_can_be_resumed(
    tmp_path: Path, finished: isfl.Run
) -> None:
    class EnoughError(Exception):
        """Not known to isfl."""

    def stop(record: dict[str, Any]) -> None:
        record.clear()  # the next callback has a record of its own
        raise EnoughError("after the first")

    seen: list[dict[str, Any]] = []
    with pytest.raises(EnoughError, match="after the first") as raised:
        isfl.run(CONFIG, out=tmp_path / "a", workers=2, callbacks=[seen.append, stop])
    assert raised.value.__notes__ == ["isfl: a callback raised this after round 1; isfl.resume runs the rest"]
    assert "raise EnoughError" in "".join(traceback.format_tb(raised.value.__traceback__))
    assert seen == isfl.Run(tmp_path / "a").records and len(seen) == 1
    isfl.resume(tmp_path / "a", workers=1)
    assert outcome(tmp_path / "a") == outcome(finished.path)


def test_the_model_of_a_run_is_as_accurate_as_its_last_round(finished: isfl.Run) -> None:
    model = finished.model()
    inputs, labels = prepare(finished.config).test.everything()
    with torch.no_grad():
        accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
    assert not model.training
    assert accuracy == pytest.approx(finished.records[-1]["accuracy_standard"])


def test_an_unfinished_run_has_its_records_but_no_model(interrupted: Path) -> None:
    run = isfl.Run(interrupted)
    assert not run.finished and len(run.records) == 1
    assert "1 of 2 rounds" in repr(run)
    with pytest.raises(isfl.UserError, match=r"not finished.*isfl\.resume"):
        run.model()


def test_a_resumed_run_is_bit_identical(interrupted: Path, finished: isfl.Run) -> None:
    run = isfl.Run(interrupted)
    seen: list[dict[str, Any]] = []
    resumed = isfl.resume(str(interrupted), workers=1, callbacks=[seen.append])
    assert run.finished and resumed.finished and [record["round"] for record in seen] == [2]
    assert outcome(interrupted) == outcome(finished.path)


def test_resume_refuses_other_engines(finished: isfl.Run, tmp_path: Path) -> None:
    for name in ("config.json", "run.json"):
        (tmp_path / name).write_bytes((finished.path / name).read_bytes())
    described = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**described, "engine": {"kind": "simulation"}}))
    with pytest.raises(isfl.UserError, match="engine 'simulation'; resume it with the command isfl resume"):
        isfl.resume(tmp_path)


def test_a_report_and_figures_of_a_run(finished: isfl.Run, tmp_path: Path) -> None:
    assert finished.report(tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert finished.report() == finished.path / "report.html" and finished.report().exists()
    files = finished.figures(tmp_path / "figures")
    assert {"convergence.pdf", "convergence.png", "split.pdf"} <= {file.name for file in files}
    assert sorted(files) == sorted((tmp_path / "figures").iterdir())


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(isfl.UserError, match="not a run directory"):
        isfl.Run(tmp_path)
    with pytest.raises(isfl.UserError, match="not a comparison"):
        isfl.Comparison(tmp_path)


def test_a_damaged_line_is_an_error_not_a_shorter_table(interrupted: Path) -> None:
    with (interrupted / "metrics.jsonl").open("a") as stream:
        stream.write("damage\n")
    with pytest.raises(isfl.UserError, match=r"metrics\.jsonl: line 2 is damaged"):
        _ = isfl.Run(interrupted).records


def test_a_run_describes_itself(finished: isfl.Run) -> None:
    accuracy = 100 * finished.records[-1]["accuracy_standard"]
    assert repr(finished) == f"<Run '{finished.path}': isfl, seed 0, 2 of 2 rounds, D_S {accuracy:.1f} %>"


# ---------------------------------------------------------------- manners


def test_calls_print_nothing_and_leave_the_process_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def world() -> list[object]:
        settings = [matplotlib.get_backend(), dict(matplotlib.rcParams)]
        return [torch.get_num_threads(), torch.get_rng_state().tolist(), *settings, warnings.showwarning, Path.cwd()]

    matplotlib.use("svg")
    torch.set_num_threads(2)
    before = world()
    try:
        run = isfl.run(CONFIG, ["training.rounds=1"], out=tmp_path / "a", workers=2)
        run.report()
        run.figures(tmp_path / "figures")
        run.model()
        isfl.compare(CONFIG, ["fedavg"], [0, 1], ["training.rounds=1"], out=tmp_path / "b", workers=2)
        assert world() == before
    finally:
        torch.set_num_threads(1)
        matplotlib.use("agg")
    assert capfd.readouterr() == ("", "")


def test_importing_isfl_loads_nothing_heavy_and_completion_knows_every_name() -> None:
    code = (
        "import isfl, sys; print([m for m in ('torch', 'numpy', 'matplotlib', 'pydantic') if m in sys.modules]);"
        "print(set(isfl.__all__) | {'flower', 'theory', 'federation'} <= set(dir(isfl)));"
        "print([m for m in ('torch', 'numpy') if m in sys.modules]);"
        "from isfl import *; print(Run.__name__, rho([1.0], [1.0], [2.0]), isfl.flower.ISFL.__name__)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["[]", "True", "[]", "Run 4.0 ISFL"]


def test_types_names_and_places_agree() -> None:
    assert set(isfl.__all__) == {*isfl._HOME, "__version__"}
    assert all(getattr(isfl, name) is not None for name in isfl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        _ = isfl.runs  # type: ignore[attr-defined]
    typed = inspect.getsource(isfl).partition("if TYPE_CHECKING:")[2].partition("__version__")[0]
    assert set(re.findall(r" as (\w+)$", typed, re.MULTILINE)) == {*isfl._HOME, *isfl._MODULES}
