"""Numbers of a reproduction worked out by hand, and the tables that show them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isfl.cli import terminal
from isfl.experiment.cells import Cell
from isfl.experiment.reproduce import Best, Result, best_round, results_of, to_fedavg
from isfl.problem.config import Config
from isfl.report.reproduction import full_table, terminal_tables


def lines_of(accuracies: list[float | None], top5: bool = False) -> list[dict[str, Any]]:
    """Return metrics whose accuracy on D_G is 0.1 above D_S, and whose top-5 accuracy is 0.2 above."""
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
    assert best.rounds == (2, 4) and best.round == 3  # the first of equal rounds; rounds without accuracy do not count
    assert best.standard == pytest.approx(45) and best.standard_spread == pytest.approx(7.0711, abs=1e-4)
    assert best.global_ == pytest.approx(55) and best.top5 == pytest.approx(65)


def test_rounds_to_fedavg_and_speed_up_by_hand() -> None:
    fedavg = {0: lines_of([0.1, 0.42, 0.3, 0.4]), 1: lines_of([0.1, 0.2, 0.3, 0.2])}
    fast = {0: lines_of([0.1, 0.45, 0.5, 0.6]), 1: lines_of([0.3, 0.45, 0.5, 0.6])}
    assert to_fedavg("fedavg", fedavg, fedavg) == (4, 1)
    assert to_fedavg("fast", fast, fedavg) == (
        (2 + 1) / 2,
        (4 / 2 + 4 / 1) / 2,
    )  # each against FedAvg with the same seed
    assert to_fedavg("slow", {0: lines_of([0.1, 0.2, 0.3, 0.35])}, fedavg) == (None, None)
    assert to_fedavg("half", fast | {1: lines_of([0.1])}, fedavg) == (None, None)
    assert to_fedavg("alone", {2: lines_of([0.9])}, fedavg) == (None, None)
    assert to_fedavg("seldom", {0: lines_of([None, 0.3, None, 0.4])}, fedavg) == (4, 1)


def test_leads_are_paired_by_seed_and_rows_say_how_many_seeds_they_have(tmp_path: Path) -> None:
    cells = [
        cell(tmp_path, "g", "fedavg", [0.2, 0.2]),
        cell(tmp_path, "g", "fedavg", [0.6, 0.6], seed=1),
        cell(tmp_path, "g", "new", [0.7, 0.7], seed=1),
        cell(tmp_path, "g", "other", [0.7, 0.7], seed=2),
    ]
    results = {r.label: r for r in results_of("table2", cells)}
    assert results["new"].lead == pytest.approx((10, 10)), "its own mean is 30 points above FedAvg's"
    assert results["fedavg"].lead == (0, 0) and results["other"].lead is None
    headings, rows = full_table(list(results.values()))
    at = [headings.index(name) for name in ("seeds", "last five - FedAvg")]
    assert [[row[i] for i in at] for row in rows] == [["2", "-"], ["1", "+10.00 / +10.00"], ["1", "-"]]


def test_the_speed_up_is_relative_to_fedavg_on_the_same_data(tmp_path: Path) -> None:
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
        "last five - FedAvg": "+8.00 / +8.00",
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
    accuracies = (48.88, 10.44, 58.88, 9.9, 78.88, (48.88, 58.88), (10.0, 12.0), 38.88)
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
