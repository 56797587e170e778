"""Comparisons from Python: their runs, tables, statistics over seeds, variants, callbacks and resumption."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import isfl
from isfl.cli import many
from isfl.experiment.cells import planned_cells
from isfl.federation.scheme import SHORTHANDS
from tests.resumable import TINY, outcome

CONFIG: dict[str, Any] = {**TINY, "training": {**TINY["training"], "rounds": 2}}
FLOOR = {"half-width": ["model.width=0.125"]}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> isfl.Comparison:
    out = tmp_path_factory.mktemp("runs") / "compared"
    return isfl.compare(CONFIG, ["fedavg", "calibrated"], [0, 1], ["training.rounds=1"], out=out, workers=2)


def test_a_comparison_has_its_runs_and_a_row_per_scheme(compared: isfl.Comparison) -> None:
    assert {scheme: [run.config.seed for run in runs] for scheme, runs in compared.runs.items()} == {
        "fedavg": [0, 1],
        "calibrated": [0, 1],
    }
    accuracies = [100 * run.records[-1]["accuracy_standard"] for run in compared.runs["calibrated"]]
    row = compared.summary[1]
    assert row["scheme"] == "calibrated" and row["standard"] == pytest.approx(sum(accuracies) / 2)
    written = json.loads((compared.path / "summary.json").read_text())
    assert json.loads(json.dumps(compared.summary)) == written
    assert (compared.path / "report.html").exists() and (compared.path / "comparison.png").exists()
    assert repr(compared) == f"<Comparison '{compared.path}': fedavg, calibrated; 4 of 4 runs are finished>"


def test_an_unfinished_comparison_has_runs_but_no_summary(compared: isfl.Comparison) -> None:
    model = compared.runs["calibrated"][1].path / "model.safetensors"
    content = model.read_bytes()
    model.unlink()
    try:
        assert not compared.finished
        with pytest.raises(isfl.UserError, match="the comparison is not finished"):
            _ = compared.summary
    finally:
        model.write_bytes(content)
    assert compared.finished and compared.summary


def test_python_and_the_command_line_compare_the_same_by_default() -> None:
    ours, theirs = (inspect.signature(function).parameters for function in (isfl.compare, many.compare))
    for name in ("schemes", "seeds"):
        assert ",".join(map(str, ours[name].default)) == theirs[name].default


def test_a_script_needs_no_guard_to_compare(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import isfl\n"
        f"isfl.compare({CONFIG!r}, ['fedavg'], [0, 1], ['training.rounds=1'], out='c', workers=2)\n"
        "print('once')\n",
        encoding="utf-8",
    )
    result = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (result.stdout, result.stderr) == ("once\n", "")


def test_metrics_of_a_comparison_have_one_row_per_scheme_seed_and_round(compared: isfl.Comparison) -> None:
    keys = [(record["scheme"], record["seed"], record["round"]) for record in compared.records]
    assert keys == [("fedavg", 0, 1), ("fedavg", 1, 1), ("calibrated", 0, 1), ("calibrated", 1, 1)]
    assert compared.records[3] == {"scheme": "calibrated", "seed": 1, **compared.runs["calibrated"][1].records[0]}
    pandas = pytest.importorskip("pandas", reason="pandas is not a dependency of isfl")
    assert isinstance(compared.metrics, pandas.DataFrame)
    means = compared.metrics.groupby("scheme")["accuracy_standard"].mean()
    assert 100 * means["calibrated"] == pytest.approx(compared.summary[1]["standard"])


# ---------------------------------------------------------------- paired by seed


def test_paired_statistics_are_those_of_scipy(compared: isfl.Comparison) -> None:
    (row,) = compared.paired(against="fedavg")
    ours, theirs = (
        [100 * run.records[-1]["accuracy_standard"] for run in compared.runs[name]] for name in ("calibrated", "fedavg")
    )
    differences = np.subtract(ours, theirs)
    assert (row["scheme"], row["against"], row["seeds"]) == ("calibrated", "fedavg", 2)
    assert row["by_seed"] == pytest.approx(dict(enumerate(differences)))
    assert (row["difference"], row["spread"]) == pytest.approx((differences.mean(), differences.std(ddof=1)))
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))
    assert (row["better"], row["worse"]) == ((differences > 0).sum(), (differences < 0).sum())
    (back,) = compared.paired(against="calibrated")
    assert back["difference"] == pytest.approx(-row["difference"]) and back["better"] == row["worse"]
    (clients,) = compared.paired(against="fedavg", metric="worst_client_accuracy")
    assert clients["difference"] == pytest.approx(
        compared.summary[1]["worst_client"] - compared.summary[0]["worst_client"]
    )


def test_a_pair_that_does_not_exist_is_named(compared: isfl.Comparison) -> None:
    with pytest.raises(isfl.UserError, match="against is 'moon'; choose one of fedavg, calibrated"):
        compared.paired(against="moon")
    with pytest.raises(isfl.UserError, match="metric is 'loss'; choose one of accuracy_standard"):
        compared.paired("fedavg", "loss")  # type: ignore[arg-type]  # as a user without a type checker


# ---------------------------------------------------------------- variants, callbacks, resumption


def test_one_seed_has_no_interval_and_a_variant_is_a_row_of_its_own(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    comparison = isfl.compare(
        CONFIG, "fedavg", [3], ["training.rounds=1"], variants=FLOOR, out=tmp_path / "c", callbacks=[seen.append]
    )
    assert {label: runs[0].config.model.width for label, runs in comparison.runs.items()} == {
        "fedavg": 0.25,
        "half-width": 0.125,
    }
    (row,) = comparison.paired(against="fedavg")
    assert (row["seeds"], row["spread"], row["low"], row["high"]) == (1, 0.0, None, None)
    assert sorted(seen, key=lambda record: record["scheme"]) == comparison.records


def test_a_variant_cannot_leave_the_directory(tmp_path: Path) -> None:
    for name in ("../a", "..", "a/b", ""):
        with pytest.raises(isfl.UserError, match="a name has letters, digits"):
            isfl.compare(CONFIG, ["fedavg"], [0], variants={name: ["seed=1"]}, out=tmp_path / "c")


def test_all_schemes_by_one_word(tmp_path: Path) -> None:
    class PlannedError(Exception):
        """Raised instead of running every scheme."""

    def stop(record: dict[str, Any]) -> None:
        raise PlannedError

    with pytest.raises(PlannedError):
        isfl.compare(
            {**CONFIG, "scheme": "fedavg", "target": {"kind": "global"}},
            "all",
            [0],
            out=tmp_path / "c",
            workers=1,
            callbacks=[stop],
        )
    _, cells = planned_cells(tmp_path / "c")
    assert sorted(cell.label for cell in cells) == sorted(SHORTHANDS)


def test_a_resumed_comparison_is_bit_identical(tmp_path: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    whole = isfl.compare(CONFIG, ["fedavg", "isfl"], [0], out=tmp_path / "whole", workers=2)
    with pytest.raises(KeyboardInterrupt):
        isfl.compare(CONFIG, ["fedavg", "isfl"], [0], out=tmp_path / "stopped", workers=2, callbacks=[stop])
    assert not isfl.Comparison(tmp_path / "stopped").finished
    seen: list[dict[str, Any]] = []
    resumed = isfl.resume(tmp_path / "stopped", workers=2, callbacks=[seen.append])
    assert isinstance(resumed, isfl.Comparison) and resumed.finished and (resumed.path / "summary.json").exists()
    assert [(row["scheme"], row["standard"]) for row in resumed.summary] == [
        (row["scheme"], row["standard"]) for row in whole.summary
    ]
    for scheme in ("fedavg", "isfl"):
        ours, theirs = (runs[scheme][0].path for runs in (resumed.runs, whole.runs))
        assert outcome(ours) == outcome(theirs)
    assert 0 < len(seen) < 4 and seen[-1] in resumed.records


def test_a_reproduction_is_resumed_by_its_command(compared: isfl.Comparison, tmp_path: Path) -> None:
    plan = json.loads((compared.path / "cells.json").read_text())
    (tmp_path / "cells.json").write_text(json.dumps({**plan, "command": "reproduce"}))
    with pytest.raises(isfl.UserError, match="holds the runs of isfl reproduce; resume it with isfl resume"):
        isfl.resume(tmp_path)
