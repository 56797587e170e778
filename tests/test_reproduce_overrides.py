"""`isfl reproduce --set`: which keys can be overridden, and which a cell fixes."""

from __future__ import annotations

from pathlib import Path

import pytest

from isfl.experiment.cells import planned_cells
from isfl.report.reading import flat
from tests.commands import exit_code
from tests.reproduction import refused


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("scheme.name=isfl", "the cell nr-0.95/fedavg fixes scheme.name"),
        ("scheme=isfl", "the cell nr-0.95/fedavg fixes scheme."),
        ("scheme.sampling.rule=uniform", "fixes scheme.sampling.rule"),
        ("scheme.sampling={rule='uniform'}", "fixes scheme.sampling."),
        ("split.nr=0.5", "fixes split.nr"),
        ("split.clients=5", "give --clients instead"),
        ("split={}", "fixes split."),
        ("data.name=digits", "fixes data.name"),
        ("seed=3", "give --seeds instead"),
        ("training={rounds=3}", "training is a table; set its keys one by one"),
        ("training.augmnt=[]", "training.augmnt: unknown key"),
        ("scheme.sampling.reference=after", "table2 nr-0.95/fedavg: scheme.sampling.reference: unknown key"),
        ("training.rounds", "write key=value"),
    ],
)
def test_keys_that_define_a_cell_cannot_be_overridden(
    override: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert message in refused(capsys, "table2", "--scale", "smoke", "--set", override, "--out", str(out))
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "only", "override", "message"),
    [
        ("fig-sr", "*", "training.sampling_ratio=0.5", "SR=0.1/fedavg fixes training.sampling_ratio"),
        ("fig-cost", "*", "data.public=100", "K=5/isfedavg fixes data.public"),
        ("table2", "*/tempered", "scheme.sampling.temperature=1", "fixes scheme.sampling.temperature"),
        ("table2", "*/isfl-0.01", "scheme.sampling.floor=0.1", "fixes scheme.sampling.floor"),
        ("table2", "*/fedavg", "scheme.sampling.rule=uniform", "nr-0.95/fedavg fixes scheme.sampling.rule"),
        ("table2", "*/fedavg", "scheme.objective={kind='moon'}", "nr-0.95/fedavg fixes scheme.objective."),
        ("table2", "*/fedavg", "scheme.aggregation.rule=median", "nr-0.95/fedavg fixes scheme.aggregation.rule"),
        ("table2", "*/fedavg", "scheme.pooled=true", "nr-0.95/fedavg fixes scheme.pooled"),
        ("table2", "*/pj-is", "scheme.sampling.normalised=false", "nr-0.95/pj-is fixes scheme.sampling.normalised"),
        ("table2", "*/uniform-is", "scheme.objective.calibrate=true", "fixes scheme.objective.calibrate"),
        ("table2", "*/isfl-0.05", "scheme.sampling.strength=0.0", "fixes scheme.sampling.strength"),
        ("table2", "*/isfl-0.05", "scheme.sampling.solver=exact", "fixes scheme.sampling.solver"),
    ],
)
def test_keys_that_define_a_figure_or_a_scheme_cannot_be_overridden(
    name: str, only: str, override: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--scale", "smoke", "--only", only, "--set", override, "--out", str(tmp_path / "out"))
    assert message in refused(capsys, name, *options)


def test_overrides_are_checked_against_the_chosen_cells_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--scale", "smoke", "--jobs", "1", "--out", str(out), "--only", "nr-0.98/isfl-0.0*"]
    options += ["--set", "scheme.sampling.reference=after", "--set", "training.augment=[]"]
    assert exit_code("reproduce", "table2", *options) in (None, 0)
    plan, cells = planned_cells(out)
    assert plan["set"] == ["scheme.sampling.reference=after", "training.augment=[]"]
    assert {cell.label for cell in cells} == {"isfl-0.05", "isfl-0.01", "isfl-calibrated"}
    for found in (flat(cell.config.model_dump()) for cell in cells):
        assert found["scheme.sampling.reference"] == "after" and found["training.augment"] == []
        assert found["scheme.sampling.first_round"] == "target", (
            "keys that are not overridden keep the interpretation's values"
        )
    text = (out / "table2.md").read_text()
    assert "with scheme.sampling.reference=after, training.augment=[]" in text
    assert "rounds to FedAvg" not in text, "there is no FedAvg to compare with"
    assert exit_code("reproduce", "table2", *options) in (None, 0), "the same command resumes"
