"""The paper's experiments by name: every setting, every cell, and the published numbers beside ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isfl.cli import main, terminal
from isfl.data.splits.mixed import MixedSplit
from isfl.experiment.cells import Cell, planned_cells
from isfl.experiment.paper import EXPERIMENTS, plans_of
from isfl.experiment.paper_setting import Plan, Setting
from isfl.experiment.reproduce import Best, Result, best_round, published, published_numbers, results_of, to_fedavg
from isfl.problem.config import Config, config_from
from isfl.report.reading import flat, read_run
from isfl.report.remarks import remarks
from isfl.report.reproduction import full_table, terminal_tables

INTERPRETATIONS = ("text", "authors", "published")


def setting(scale: str, interpretation: str = "published", clients: int | None = None) -> Setting:
    return Setting(scale, interpretation, clients)  # type: ignore[arg-type]


def settings_of(plan: Plan) -> dict[str, Any]:
    """Every key of a cell, as `a.b.c`."""
    return flat(config_from(plan.config, "x").model_dump(mode="json"))


def isfl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "isfl.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80"},
        timeout=280,
    )


def exit_code(*arguments: str) -> int | str | None:
    """Of the command, run in this process."""
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    return ending.value.code


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command is refused."""
    capsys.readouterr()
    assert exit_code("reproduce", *arguments) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and errors.startswith("error: ")
    return errors


# ---------------------------------------------------------------- what is run

PAPER = {
    "data.name": "cifar10",
    "data.normalize": None,
    "model.name": "resnet8",
    "model.width": 1.0,
    "training.rounds": 25,
    "training.local_epochs": 5,
    "training.batch_size": 128,
    "training.sampling_ratio": 1.0,
    "training.participation": 1.0,
    "training.optimizer.kind": "adam",
    "training.optimizer.lr": 1e-3,
    "training.optimizer.beta1": 0.9,
    "training.optimizer.beta2": 0.999,
    "training.optimizer.weight_decay": 0.0,
    "training.schedule.kind": "constant",
    "training.batchnorm": "average",
    "scheme.aggregation.rule": "mean",
    "target.kind": "global",
}
"""What all interpretations of table2 share."""
CROP_AND_FLIP = [{"kind": "crop", "padding": 4}, {"kind": "flip", "probability": 0.5}]
DIFFERENT: dict[str, tuple[Any, Any, Any]] = {
    "split.clients": (10, 10, 20),
    "data.public": (500, 1000, 500),
    "data.public_from": ("unused", "all", "all"),
    "training.augment": ([], [], CROP_AND_FLIP),
    "training.initial_models": ("shared", "independent", "independent"),
    "scheme.aggregation.weights": ("size", "client", "client"),
}
MIXED = {"split.reading": ("text", "code", "code"), "split.overlap": (False, True, True)}
ISFL = {
    "scheme.sampling.reference": ("after", "before", "before"),
    "scheme.sampling.first_round": ("local", "target", "target"),
}


@pytest.mark.parametrize("interpretation", INTERPRETATIONS)
def test_the_full_scale_of_table_2_field_by_field(interpretation: str) -> None:
    own = INTERPRETATIONS.index(interpretation)
    plans = plans_of("table2", setting("paper", interpretation))
    assert len(plans) == 4 * 11
    for plan in plans:
        found = settings_of(plan)
        is_isfl = plan.label.startswith("isfl-")
        expected = PAPER | {key: values[own] for key, values in DIFFERENT.items()}
        if plan.group.startswith("nr-"):
            expected |= {"split.kind": "mixed", "split.nr": float(plan.group[3:])}
            expected |= {"split.shards_per_client": 2, "split.shard_size": 500}
            expected |= {key: values[own] for key, values in MIXED.items()}
        else:
            expected |= {"split.kind": "dirichlet", "split.alpha": float(plan.group[10:])}
            expected |= {"split.samples_per_client": 1000}
        if is_isfl:
            expected |= {key: values[own] for key, values in ISFL.items()}
        # only the authors' ISFL loader drops the last batch
        expected["training.drop_last"] = is_isfl and interpretation != "text"
        assert {key: found[key] for key in expected} == expected, (plan.group, plan.label)
    floors = {p.label: settings_of(p)["scheme.sampling.floor"] for p in plans if p.label.startswith("isfl-0")}
    assert floors == {"isfl-0.05": 0.05, "isfl-0.01": 0.01}


@pytest.mark.parametrize("interpretation", INTERPRETATIONS)
def test_the_full_scale_of_table_3_field_by_field(interpretation: str) -> None:
    cells = {(p.group, p.label): settings_of(p) for p in plans_of("table3", setting("paper", interpretation))}
    assert [cells[data, "fedprox"]["scheme.objective.mu"] for data in ("cifar10", "cifar100")] == [0.2, 0.01]
    assert [cells[data, "moon"]["scheme.objective.tau"] for data in ("cifar10", "cifar100")] == [0.5, 0.2]
    assert [cells[data, "moon"]["scheme.objective.mu"] for data in ("cifar10", "cifar100")] == [1.0, 1.0]
    by_code = interpretation != "text"
    representation = "logits" if by_code else "features"
    assert cells["cifar10", "moon"]["scheme.objective.representation"] == "features"
    assert cells["cifar100", "moon"]["scheme.objective.representation"] == representation
    for (data, _), found in cells.items():
        assert found["split.clients"] == 10, "the paper says so for this table"
        ten = data == "cifar10"
        assert found["training.rounds"] == (25 if ten else 30)
        assert found["model.name"] == ("resnet8" if ten else "resnet9")
        assert found["split.alpha"] == (0.2 if ten else 0.5)
        assert found["split.samples_per_client"] == (1000 if ten else 5000 if by_code else 4950)
        assert ("data.normalize.mean" in found) == (by_code and not ten)


@pytest.mark.parametrize("interpretation", INTERPRETATIONS)
def test_the_centralised_reference_sees_every_image(interpretation: str) -> None:
    for plan in plans_of("centralized", setting("paper", interpretation)):
        found = settings_of(plan)
        assert (found["split.kind"], found["split.clients"], found["split.samples_per_client"]) == ("iid", 1, 50_000)
        assert found["data.public_from"] == "all"
    known = {group: rows["centralized"] for group, rows in published_numbers("centralized").items()}
    assert known == {"cifar10": {"accuracy": 91.25}, "cifar100": {"accuracy": 62.25, "top5": 85.25}}


@pytest.mark.parametrize("interpretation", INTERPRETATIONS)
@pytest.mark.parametrize("scale", ["quick", "half"])
def test_smaller_scales_differ_in_width_and_rounds_only(scale: str, interpretation: str) -> None:
    for name in EXPERIMENTS:
        small, full = (plans_of(name, setting(size, interpretation)) for size in (scale, "paper"))
        for one, other in zip(small, full, strict=True):
            reduced = settings_of(one)
            assert (one.group, one.label, reduced["model.width"]) == (other.group, other.label, 0.5)
            expected = settings_of(other) | {"model.width": 0.5}
            assert reduced == expected | ({"training.rounds": 10} if scale == "quick" else {})


@pytest.mark.parametrize(("interpretation", "share"), [("text", 0.02), ("authors", 0.1), ("published", 0.05)])
def test_the_cost_figure_varies_sizes_and_not_the_skew(interpretation: str, share: float) -> None:
    plans = plans_of("fig-cost", setting("paper", interpretation))
    plans += [p for p in plans_of("table2", setting("paper", interpretation)) if p.group == "nr-0.98"]
    for plan in plans:
        split = config_from(plan.config, "x").split
        assert isinstance(split, MixedSplit)
        whole = 0.5 / split.shard_size  # a shard holds whole samples
        assert split.iid_per_shard(50_000) / split.shard_size == pytest.approx(share, abs=whole + 1e-9), plan.group
    shapes = {
        (p.config["split"]["clients"], p.config["split"]["shard_size"], p.config["data"]["public"]) for p in plans
    }
    assert len({k for k, _, _ in shapes}) == 3 and len({n for _, n, _ in shapes}) == 3


def test_the_number_of_clients_where_it_is_not_varied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("table2", "table3", "fig-cross", "fig-convergence", "fig-rho", "fig-q", "fig-sr"):
        assert {p.config["split"]["clients"] for p in plans_of(name, setting("paper", "text", 20))} == {20}
    # 20 clients cannot have 5,000 images of CIFAR-100 each
    sizes = [p.config["split"] for p in plans_of("table3", setting("paper", "authors", 20)) if p.group == "cifar100"]
    assert {split["samples_per_client"] for split in sizes} == {2500}
    cost = {p.group: p.config["split"]["clients"] for p in plans_of("fig-cost", setting("paper", "text", 15))}
    assert cost == {
        "K=5": 5,
        "K=10": 10,
        "K=15": 15,
        "K=20": 20,
        "Dk=500": 15,
        "Dk=2000": 15,
        "DL=250": 15,
        "DL=1000": 15,
    }
    assert "no clients to vary" in refused(
        capsys, "centralized", "--scale", "smoke", "--clients", "20", "--out", str(tmp_path / "out")
    )


def test_every_published_number_has_a_cell() -> None:
    for name in EXPERIMENTS:
        cells = {(p.group, p.label) for p in plans_of(name, setting("paper"))}
        numbers = {(group, label) for group, rows in published_numbers(name).items() for label in rows}
        assert numbers <= cells or isinstance(published()[name], str), name
    assert published_numbers("fig-cross") == published()["table3"]


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize(
    ("name", "interpretation"),
    [*(("table2", i) for i in INTERPRETATIONS), *((name, "published") for name in EXPERIMENTS if name != "table2")],
)
def test_smoke_fills_every_cell(
    name: str,
    interpretation: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminal, "console", Console(width=80, highlight=False))
    out = tmp_path / "out"
    options = ("--scale", "smoke", "--as", interpretation, "--jobs", "1", "--out", str(out))
    assert exit_code("reproduce", name, *options) in (None, 0)
    shown = capsys.readouterr().out
    tables = [line for line in shown.splitlines() if line.startswith(("┏", "┃", "│", "└"))]
    assert tables and max(map(len, tables)) <= 80 and "…" not in shown
    content = json.loads((out / f"{name}.json").read_text())
    assert content["setting"] == {"scale": "smoke", "as": interpretation, "clients": None, "set": []}
    expected = [(p.group, p.label) for p in plans_of(name, setting("smoke", interpretation))]
    assert [(r["group"], r["label"]) for r in content["results"]] == expected
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (out / f"{name}-curves.png").exists() == name.startswith("table")
    text = (out / f"{name}.md").read_text()
    assert "have not been made" not in text and "not comparable" in text
    assert "chosen on the test set" in text and "chosen on the test set" in " ".join(shown.split())
    for row in content["results"]:
        assert row["best"]["standard"] >= row["standard"] and row["best"]["rounds"][0] in (1, 2)
        for key, value in row["published"].items():
            ours = {"standard": row["standard"], "global": row["global_"], "top5": row["top5"]}.get(key)
            if ours is not None:
                assert row["difference"][key] == pytest.approx(ours - value)
    if name == "table2":
        assert content["results"][0]["published"] == {"standard": 63.38, "global": 66.25}
        assert "q proportional to p^k p" in text and "scheme.sampling.unbiased = true" in text
    if name == "table3":
        assert "| rounds to FedAvg | speed-up | published speed-up | top-5 %: last / best | published top-5 |" in text
        assert content["results"][0]["speedup"] == 1.0  # FedAvg against itself
    if name == "centralized":
        assert "| 91.25 |" in text and "| 62.25 |" in text and "| 85.25 |" in text
        assert "91.2" in shown and "85.2" in shown
    if name == "fig-sr":
        assert "58.00 / 71.00" in text
    if name == "fig-rho":
        assert re.search(r"the rho in use (rose|fell) from [\d.]+ in round 1 to [\d.]+ in round 2", text)
    if name == "fig-q":
        assert text.count("- nr-0.98/") == 2


def test_a_part_first_the_rest_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    smoke = ("reproduce", "table2", "--scale", "smoke", "--jobs", "1", "--out", str(out), "--only")
    assert exit_code(*smoke, "nr-0.98/*avg") in (None, 0)
    assert "42 runs of this experiment have not been made" in (out / "table2.md").read_text()
    model = out / "nr-0.98/fedavg/seed-0/model.safetensors"
    before = model.stat().st_mtime_ns
    capsys.readouterr()
    assert exit_code("resume", str(out)) in (None, 0)
    assert "[2/2]" in capsys.readouterr().out, "goes on with what was asked for, not with all forty-four"
    assert exit_code(*smoke, "nr-0.98/*") in (None, 0)
    assert len(json.loads((out / "table2.json").read_text())["results"]) == 11
    assert model.stat().st_mtime_ns == before
    for arguments, message in (
        (("table2", "--scale", "quick"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--as", "text"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--clients", "10"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--set", "training.augment=[]"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--seeds", "1"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--seeds", "0,0"), "each once"),
        (("table2", "--scale", "smoke", "--seeds", ""), "at least one number"),
        (("table2", "--scale", "smoke", "--only", "nr-0.5/*"), "matches none of"),
        (("table9",), "is not an experiment of the paper"),
        (("table2", "--scale", "nonsense"), "--scale nonsense: choose one of smoke, quick, half, paper"),
        (("table2", "--as", "nonsense"), "--as nonsense: choose one of text, authors, published"),
    ):
        assert message in refused(capsys, *arguments, "--out", str(out))


# ---------------------------------------------------------------- overrides


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("scheme.name=isfl", "the cell nr-0.95/fedavg fixes scheme.name"),
        ("scheme=isfl", "the cell nr-0.95/fedavg fixes scheme."),
        ("scheme.sampling.rule=uniform", "fixes scheme.sampling.rule"),
        ("scheme.sampling={rule='uniform'}", "fixes scheme.sampling.rule"),
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
def test_what_a_cell_stands_for_cannot_be_overridden(
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
        ("table2", "*/fedavg", "scheme.objective={kind='moon'}", "nr-0.95/fedavg fixes scheme.objective.kind"),
        ("table2", "*/fedavg", "scheme.aggregation.rule=median", "nr-0.95/fedavg fixes scheme.aggregation.rule"),
    ],
)
def test_what_a_figure_varies_and_a_scheme_is_made_of_is_fixed_there(
    name: str, only: str, override: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--scale", "smoke", "--only", only, "--set", override, "--out", str(tmp_path / "out"))
    assert message in refused(capsys, name, *options)


def test_overrides_of_chosen_cells_need_not_fit_the_others(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--scale", "smoke", "--jobs", "1", "--out", str(out), "--only", "nr-0.98/isfl-0.0*"]
    options += ["--set", "scheme.sampling.reference=after", "--set", "training.augment=[]"]
    assert exit_code("reproduce", "table2", *options) in (None, 0)
    plan, cells = planned_cells(out)
    assert plan["set"] == ["scheme.sampling.reference=after", "training.augment=[]"]
    assert {cell.label for cell in cells} == {"isfl-0.05", "isfl-0.01", "isfl-calibrated"}
    for found in (flat(cell.config.model_dump()) for cell in cells):
        assert found["scheme.sampling.reference"] == "after" and found["training.augment"] == []
        assert found["scheme.sampling.first_round"] == "target", "what is not overridden stays the interpretation's"
    text = (out / "table2.md").read_text()
    assert "with scheme.sampling.reference=after, training.augment=[]" in text
    assert "rounds to FedAvg" not in text, "there is no FedAvg to compare with"
    assert exit_code("reproduce", "table2", *options) in (None, 0), "the same command goes on"


# ---------------------------------------------------------------- numbers by hand


def lines_of(accuracies: list[float | None], top5: bool = False) -> list[dict[str, Any]]:
    """Metrics of a run whose D_G is always a tenth above D_S, and whose top-5 two tenths."""
    return [
        {
            "round": i + 1,
            "accuracy_standard": value,
            "accuracy_global": None if value is None else value + 0.1,
            "worst_client_accuracy": None if value is None else value - 0.05,
            "gradient_evaluations": {"training": 100, "sampling": 20},
            **({"accuracy_standard_top5": value + 0.2} if top5 and value is not None else {}),
        }
        for i, value in enumerate(accuracies)
    ]


def cell(out: Path, group: str, label: str, accuracies: list[float | None], seed: int = 0, top5: bool = False) -> Cell:
    out = out / group / label / str(seed)
    out.mkdir(parents=True)
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines_of(accuracies, top5)))
    return Cell(group, label, seed, Config(training={"rounds": len(accuracies)}), out)  # type: ignore[arg-type]


def test_the_best_round_by_hand() -> None:
    best = best_round([lines_of([0.1, 0.5, 0.5, 0.3], top5=True), lines_of([None, 0.2, None, 0.4], top5=True)])
    assert best.rounds == (2, 4) and best.round == 3  # the first of equals; a round without accuracy is none
    assert best.standard == pytest.approx(45) and best.standard_spread == pytest.approx(7.0711, abs=1e-4)
    assert best.global_ == pytest.approx(55) and best.top5 == pytest.approx(65)


def test_rounds_to_fedavg_and_speed_up_by_hand() -> None:
    fedavg = {0: lines_of([0.1, 0.42, 0.3, 0.4]), 1: lines_of([0.1, 0.2, 0.3, 0.2])}
    fast = {0: lines_of([0.1, 0.45, 0.5, 0.6]), 1: lines_of([0.3, 0.45, 0.5, 0.6])}
    assert to_fedavg("fedavg", fedavg, fedavg) == (4, 1)
    assert to_fedavg("fast", fast, fedavg) == (
        (2 + 1) / 2,
        (4 / 2 + 4 / 1) / 2,
    )  # each against FedAvg with its own seed
    assert to_fedavg("slow", {0: lines_of([0.1, 0.2, 0.3, 0.35])}, fedavg) == (None, None)
    assert to_fedavg("half", fast | {1: lines_of([0.1])}, fedavg) == (None, None)
    assert to_fedavg("alone", {2: lines_of([0.9])}, fedavg) == (None, None)
    assert to_fedavg("seldom", {0: lines_of([None, 0.3, None, 0.4])}, fedavg) == (4, 1)


def test_every_column_has_the_speed_up_of_its_own_rounds(tmp_path: Path) -> None:
    cells = [
        cell(tmp_path, "cifar10", "fedavg", [0.1, 0.2, 0.3, 0.4]),
        cell(tmp_path, "cifar10", "isfl", [0.1, 0.4, 0.6, 0.5]),
        cell(tmp_path, "cifar100", "fedavg", [0.1, 0.2, 0.2, 0.2, 0.2, 0.3], top5=True),
        cell(tmp_path, "cifar100", "isfl", [0.1, 0.3, 0.4, 0.2, 0.3, 0.3], top5=True),
        cell(tmp_path, "cifar100", "moon", [0.1, 0.2, 0.2, 0.2, 0.2, 0.2], top5=True),
    ]
    results = {(r.group, r.label): r for r in results_of("table3", cells)}
    assert {key: (r.rounds_to_fedavg, r.speedup) for key, r in results.items()} == {
        ("cifar10", "fedavg"): (4, 1),
        ("cifar10", "isfl"): (2, 2),
        ("cifar100", "fedavg"): (6, 1),
        ("cifar100", "isfl"): (2, 3),
        ("cifar100", "moon"): (None, None),
    }
    ours = results["cifar100", "isfl"]
    assert ours.published == {"standard": 57.01, "top5": 84.64, "speedup": 5.0}
    assert ours.difference("standard") == pytest.approx(30 - 57.01)
    assert ours.difference("standard", best=True) == pytest.approx(40 - 57.01)
    assert ours.difference("top5", best=True) == pytest.approx(60 - 84.64)
    assert ours.difference("speedup") == -2
    headings, rows = full_table([results["cifar100", label] for label in ("fedavg", "isfl", "moon")])
    [row] = [dict(zip(headings, row, strict=True)) for row in rows if row[0] == "isfl"]
    assert row == {
        "scheme": "isfl",
        "last round: D_S / D_G %": "30.00 / 40.00",
        "last five rounds: D_S / D_G %": "30.00 / 40.00",  # the first of six is left out
        "worst client %": "25.00",
        "best round: D_S / D_G %": "40.00 / 50.00",
        "best round": "3",
        "published": "57.01",
        "last - published": "-27.01",
        "best - published": "-17.01",
        "rounds to FedAvg": "2",
        "speed-up": "3.00x",
        "published speed-up": "5.00x",
        "top-5 %: last / best": "50.00 / 60.00",
        "published top-5": "84.64",
        "extra %": "20",
    }
    assert rows[2][headings.index("rounds to FedAvg")] == "-"


def test_the_widest_tables_fit_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "console", Console(width=80, highlight=False))
    best = Best((24, 25), 68.88, 10.44, 78.88, 88.88)
    accuracies = (48.88, 10.44, 58.88, 9.9, 78.88, (48.88, 58.88), 38.88)
    wide = Result("g", "pj-unnormalised", 2, *accuracies, best, 12.5, 1.5, 113.0, {})
    both = replace(wide, published={"standard": 38.39, "global": 44.47})
    cross = replace(wide, published={"standard": 57.01, "top5": 84.64, "speedup": 5.0})
    for result in (wide, both, cross):
        for headings, rows in terminal_tables([result, replace(result, label="fedavg")]):
            terminal.print_table(headings, rows, "g", "")
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown
    for part in (
        "48.9±10.4 / 58.9",
        "68.9 / 78.9 @ 24",
        "38.4 / 44.5",
        "12.5",
        "113",
        "1.50x",
        "5.00x",
        "88.9",
        "84.6",
    ):
        assert part in shown


def written_run(out: Path, files: dict[str, list[dict[str, Any]]]) -> Path:
    out.mkdir()
    for name, content in files.items():
        (out / name).write_text("".join(json.dumps(line) + "\n" for line in content))
    return out


@pytest.mark.parametrize(
    ("used", "minimum", "expected"),
    [
        ([4.0, 9.0, 8.0], [2.0, 3.0, 6.0], "rose from 4 in round 1 to 8 in round 3, its minimum rose from 2 to 6"),
        (
            [4.0, 9.0, 8.0],
            [2.0, 3.0, 6.0],
            "0.50 in the first and 0.75 in the last of these rounds, so the two curves app",
        ),
        ([8.0, 5.0], [4.0, 1.0], "fell from 8 in round 1 to 5 in round 2, its minimum fell from 4 to 1"),
        (
            [8.0, 5.0],
            [4.0, 1.0],
            "0.50 in the first and 0.20 in the last of these rounds, so the two curves moved apart",
        ),
        ([None, 5.0, 10.0], [1.0, 1.0, 2.0], "from 5 in round 2 to 10 in round 3"),
        ([None, 5.0, 10.0], [1.0, 1.0, 2.0], "so the two curves kept their ratio"),
    ],
)
def test_what_rho_did_is_told_from_the_runs(
    used: list[float | None], minimum: list[float], expected: str, tmp_path: Path
) -> None:
    lines = [
        {"round": i + 1, "rho_used": u, "rho_minimum": m} for i, (u, m) in enumerate(zip(used, minimum, strict=True))
    ]
    run = read_run(written_run(tmp_path / "run", {"metrics.jsonl": lines}), label="nr-0.98 · isfl-0.05")
    [text] = remarks("fig-rho", [run])
    assert text.startswith("The paper reports that rho and its theoretical minimum fall") and expected in text
    assert remarks("fig-rho", [replace(run, lines=run.lines[:1])]) == []


def test_what_q_did_is_told_from_the_runs(tmp_path: Path) -> None:
    drawn = [[0.9, 0.1], [0.5, 0.5], [0.992, 0.008]]
    files: dict[str, list[dict[str, Any]]] = {
        "metrics.jsonl": [{"round": i + 1} for i in range(3)],
        "probabilities.jsonl": [{"round": i + 1, "probabilities": {"0": q}} for i, q in enumerate(drawn)],
        "split.json": [{"client_counts": [[90, 10]], "target": [[0.5, 0.5]], "class_names": ["a", "b"]}],
    }
    [text] = remarks("fig-q", [read_run(written_run(tmp_path / "run", files), label="nr-0.98 · isfl")])
    assert "nr-0.98/isfl: q moves by 0.446 from one round to the next" in text  # (0.4 + 0.492) / 2
    assert "in the last round it is 0.492 from the target, the clients' own mixes are 0.400 from it" in text
    assert "0 % of the client-class pairs are always drawn more often than uniformly, 50 % fall below 0.01" in text


def test_notes_on_a_row_stand_where_the_row_stands(tmp_path: Path) -> None:
    run = read_run(written_run(tmp_path / "run", {"metrics.jsonl": [{"round": 1}]}), label="nr-0.98 · fedavg")
    assert remarks("table2", [run]) == []
    [note] = remarks("table2", [run, replace(run, label="nr-0.98 · pj-unnormalised")])
    assert "stays close to FedAvg in all four columns" in note
    [note] = remarks("table2", [run, replace(run, label="nr-0.98 · isfedavg")])
    assert "biased" in note


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


def test_personalisation_moves_the_target_and_nothing_else() -> None:
    for row in ("pj-is", "isfl-0.05"):
        configs = [config_from(p.config, "x") for p in plans_of("fig-personal", Setting("half")) if p.label == row]
        assert [c.target.model_dump() for c in configs] == [
            {"kind": "local", "weight": weight} for weight in (0.0, 0.25, 0.5, 0.75, 1.0)
        ]
        assert len({c.model_dump_json(exclude={"target"}) for c in configs}) == 1
