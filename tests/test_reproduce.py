"""The paper's experiments by name: the published setting, every cell, the published numbers beside ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from isfl.cli import main
from isfl.experiment.cells import Cell
from isfl.experiment.config import Config, config_from
from isfl.experiment.paper import EXPERIMENTS, plans_of
from isfl.experiment.reproduce import _speedup, published


def isfl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "isfl.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80"},
        timeout=280,
    )


def test_the_full_scale_of_table_2_is_the_published_setting_field_by_field() -> None:
    plans = plans_of("table2", "paper")
    assert len(plans) == 4 * 10
    for plan in plans:
        config = config_from(plan.config, "x")
        assert config.data.name == "cifar10" and config.data.public == 500
        assert (config.model.name, config.model.width) == ("resnet8", 1.0)
        training = config.training
        assert (training.rounds, training.local_epochs, training.batch_size) == (25, 5, 128)
        assert (training.sampling_ratio, training.participation, training.drop_last) == (1.0, 1.0, False)
        assert training.optimizer.model_dump() == {
            "kind": "adam",
            "lr": 1e-3,
            "beta1": 0.9,
            "beta2": 0.999,
            "weight_decay": 0.0,
        }
        assert config.scheme.aggregation.model_dump() == {"rule": "mean", "weights": "size"}
        assert config.target.kind == "global" and training.batchnorm == "average"
        split = config.split.model_dump()
        assert split["clients"] == 10
        if plan.group.startswith("nr"):
            assert (split["kind"], split["nr"], split["reading"]) == ("mixed", float(plan.group[3:]), "code")
            assert (split["shards_per_client"], split["shard_size"]) == (2, 500)
        else:
            assert (split["kind"], split["alpha"]) == ("dirichlet", float(plan.group[10:]))
            assert split["samples_per_client"] == 1000
    floors = {p.label: config_from(p.config, "x").scheme.sampling for p in plans if p.label.startswith("isfl-0")}
    assert {label: rule.floor for label, rule in floors.items()} == {"isfl-0.05": 0.05, "isfl-0.01": 0.01}  # type: ignore[union-attr]


def test_the_full_scale_of_table_3_has_the_published_hyper_parameters() -> None:
    objectives = {(p.group, p.label): config_from(p.config, "x") for p in plans_of("table3", "paper")}
    values = {key: config.scheme.objective.model_dump() for key, config in objectives.items()}
    assert values["cifar10", "fedprox"]["mu"] == 0.2 and values["cifar100", "fedprox"]["mu"] == 0.01
    assert (values["cifar10", "moon"]["mu"], values["cifar10", "moon"]["tau"]) == (1.0, 0.5)
    assert (values["cifar100", "moon"]["mu"], values["cifar100", "moon"]["tau"]) == (1.0, 0.2)
    assert objectives["cifar100", "isfl"].model.name == "resnet9"
    assert objectives["cifar100", "isfl"].split.model_dump()["alpha"] == 0.5


def test_quick_differs_from_paper_in_width_and_rounds_only() -> None:
    for name in EXPERIMENTS:
        for quick, paper in zip(plans_of(name, "quick"), plans_of(name, "paper"), strict=True):
            small = config_from(quick.config, "x").model_dump()
            full = config_from(paper.config, "x").model_dump()
            small["model"]["width"], small["training"]["rounds"] = 1.0, 25
            assert small == full


def test_every_published_number_has_a_cell() -> None:
    for table in ("table2", "table3"):
        cells = {(p.group, p.label) for p in plans_of(table, "paper")}
        numbers = {(group, label) for group, rows in published()[table].items() for label in rows}
        assert numbers <= cells


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_smoke_fills_every_cell(name: str, tmp_path: Path) -> None:
    result = isfl("reproduce", name, "--scale", "smoke", "--out", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / f"out/{name}.json").read_text())
    expected = [(p.group, p.label) for p in plans_of(name, "smoke")]
    assert [(r["group"], r["label"]) for r in content["results"]] == expected
    assert (tmp_path / f"out/{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / f"out/{name}.md").read_text()
    assert "have not been made" not in text and "not comparable" in text
    if name == "table2":
        row = content["results"][0]
        assert row["published"] == {"standard": 63.38, "global": 66.25}
        assert row["difference"]["standard"] == pytest.approx(row["standard"] - 63.38)
    if name == "fig-sr":
        assert "58.00 / 71.00" in text
    if name == "table3":
        assert "| top-5 % | published | speed-up | published |" in text
        assert content["results"][0]["speedup"] == 1.0  # FedAvg against itself


def test_a_part_first_the_rest_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = isfl("reproduce", "table2", "--scale", "smoke", "--only", "nr-0.98/*avg", "--out", "out", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "38 runs of this experiment have not been made" in (tmp_path / "out/table2.md").read_text()
    model = tmp_path / "out/nr-0.98/fedavg/seed-0/model.safetensors"
    before = model.stat().st_mtime_ns
    again = isfl("resume", "out", cwd=tmp_path)  # goes on with what was asked for, not with all forty
    assert again.returncode == 0 and "[2/2]" in again.stdout, again.stderr
    more = isfl("reproduce", "table2", "--scale", "smoke", "--only", "nr-0.98/*", "--out", "out", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert len(json.loads((tmp_path / "out/table2.json").read_text())["results"]) == 10
    assert model.stat().st_mtime_ns == before
    for arguments, message in (
        (("table2", "--scale", "quick"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--seeds", "1"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--seeds", "0,0"), "each once"),
        (("table2", "--scale", "smoke", "--seeds", ""), "at least one number"),
        (("table2", "--scale", "smoke", "--only", "nr-0.5/*"), "matches none of"),
        (("table9",), "is not an experiment of the paper"),
        (("table2", "--scale", "huge"), "choose one of smoke, quick, paper"),
    ):
        with pytest.raises(SystemExit) as ending:
            main(["reproduce", *arguments, "--out", str(tmp_path / "out")])
        errors = capsys.readouterr().err
        assert ending.value.code == 2 and message in errors and errors.count("\n") == 1


def cell(tmp_path: Path, label: str, seed: int, accuracies: list[float]) -> Cell:
    out = tmp_path / label / str(seed)
    out.mkdir(parents=True)
    lines = [json.dumps({"round": i + 1, "accuracy_standard": a}) for i, a in enumerate(accuracies)]
    (out / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return Cell("g", label, seed, Config(), out)


def test_speed_up_by_hand(tmp_path: Path) -> None:
    cells = [
        cell(tmp_path, "fedavg", 0, [0.1, 0.42, 0.3, 0.4]),
        cell(tmp_path, "fedavg", 1, [0.1, 0.2, 0.3, 0.2]),
        cell(tmp_path, "fast", 0, [0.1, 0.45, 0.5, 0.6]),
        cell(tmp_path, "fast", 1, [0.3, 0.45, 0.5, 0.6]),
        cell(tmp_path, "slow", 0, [0.1, 0.2, 0.3, 0.35]),
        cell(tmp_path, "alone", 2, [0.9, 0.9, 0.9, 0.9]),
    ]
    assert _speedup(cells, "g", "fedavg") == 1.0
    assert _speedup(cells, "g", "fast") == (4 / 2 + 4 / 1) / 2  # each against FedAvg with its own seed
    assert _speedup(cells, "g", "slow") is None
    assert _speedup(cells, "g", "alone") is None


def test_data_commands(tmp_path: Path) -> None:
    listed = isfl("data", "list", cwd=tmp_path)
    assert listed.returncode == 0 and "cifar10" in listed.stdout and "module:function" in listed.stdout
    got = isfl("data", "get", "digits", cwd=tmp_path)
    assert "1297 + 500 samples of shape (1, 8, 8), 10 classes" in got.stdout
    (tmp_path / "c.toml").write_text(
        "[data]\nname = 'digits'\npublic = 50\n[split]\nkind = 'dirichlet'\nsamples_per_client = 100\n"
    )
    shown = isfl("data", "show", "c.toml", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "Hellinger" in shown.stdout and (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")
    assert max(map(len, shown.stdout.splitlines())) <= 80 and "…" not in shown.stdout
    wrong = isfl("data", "get", "mnist", cwd=tmp_path)
    assert wrong.returncode == 2 and "data.name is 'mnist'" in wrong.stderr
