"""Every derived column by hand, and computed in one place only."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isfl import layout
from isfl.experiment import columns
from isfl.experiment.cells import Cell
from isfl.experiment.compare import summarise
from isfl.experiment.reproduce import results_of
from isfl.lines import read_lines
from isfl.report.content import content_of
from isfl.report.reading import find_runs
from tests.directories import tiny_config, written_run

SOURCE = Path(columns.__file__).parent.parent


def run_of(*accuracies: float | None, training: int = 100, sampling: int = 20) -> list[dict[str, Any]]:
    return [
        {
            "round": i,
            "accuracy_standard": accuracy,
            "gradient_evaluations": {"training": training, "sampling": sampling},
            "seconds": {"training": 2.0, "sampling": 0.5, "wall": 9.0},
        }
        for i, accuracy in enumerate(accuracies, start=1)
    ]


def test_extra_gradients_are_those_for_sampling_per_gradient_for_training() -> None:
    assert columns.extra_gradients([run_of(0.1, 0.2), run_of(0.1, sampling=50)]) == 100 * (20 + 20 + 50) / 300
    assert math.isnan(columns.extra_gradients([[{"round": 1}]]))


def test_seconds_are_of_training_and_sampling_per_run() -> None:
    assert columns.mean_seconds([run_of(0.1, 0.2, 0.3), run_of(0.1)]) == 4 * 2.5 / 2


def test_means_and_deviations_are_in_percent_and_of_the_last_known_round() -> None:
    runs = [run_of(0.9, 0.2, None), run_of(0.4)]
    mean, deviation = columns.final_spread(runs, "accuracy_standard")
    assert (mean, deviation) == pytest.approx((30, math.sqrt(200)))
    assert columns.final_spread(runs[:1], "accuracy_standard") == pytest.approx((20, 0))
    assert math.isnan(columns.final_spread(runs, "accuracy_global")[0])


def test_the_last_five_evaluated_rounds_are_averaged() -> None:
    assert columns.last_five([run_of(0.9, 0.1, None, 0.2, 0.3, 0.4, 0.5)], "accuracy_standard") == pytest.approx(30)


def test_the_first_round_that_reaches_a_goal() -> None:
    assert columns.first_round_with(run_of(0.1, None, 0.3, 0.2), 0.3) == 3
    assert columns.first_round_with(run_of(0.1, None), 0.3) is None


@pytest.mark.parametrize(
    ("budget", "expected"), [(119, math.nan), (120, 0.1), (180, 0.15), (240, 0.2), (300, 0.25), (360, 0.3), (999, 0.3)]
)
def test_accuracy_at_equal_cost_lies_on_straight_lines_between_rounds(budget: float, expected: float) -> None:
    assert columns.accuracy_at(run_of(0.1, 0.2, 0.3), budget) == pytest.approx(expected, nan_ok=True)


def test_a_round_that_was_not_evaluated_costs_but_has_no_accuracy() -> None:
    assert columns.accuracy_at(run_of(0.1, None, 0.3), 240) == pytest.approx(0.2)


def test_the_page_the_comparison_and_the_reproduction_show_the_same_numbers(tmp_path: Path) -> None:
    cells = []
    for label in ("fedavg", "isfl"):
        for seed in range(2):
            path = written_run(tmp_path / label / f"seed-{seed}", 3, 4, 4, label, seed)
            lines = read_lines(path / layout.METRICS)
            lines[-1] |= {"accuracy_standard": 0.3 + 0.1 * seed, "worst_client_accuracy": 0.2 * seed}
            (path / layout.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
            cells.append(Cell("", label, seed, tiny_config(label, training={"rounds": 4}), path))
    content = content_of(find_runs([tmp_path])[0], [])
    for shown, compared, reproduced in zip(
        content["side_by_side"]["rows"], summarise(cells), results_of("table2", cells), strict=True
    ):
        assert shown["label"] == compared.scheme == reproduced.label
        assert shown["standard"] == pytest.approx([compared.standard, compared.standard_spread], rel=1e-5)
        assert shown["worst_client"] == pytest.approx([compared.worst_client, compared.worst_client_spread], rel=1e-5)
        assert shown["extra_gradients"] == compared.extra_gradients == reproduced.extra_gradients == 10
        assert shown["seconds"] == pytest.approx(compared.seconds, rel=1e-5)
        assert (compared.standard, compared.standard_spread) == (reproduced.standard, reproduced.standard_spread)
    assert content["side_by_side"]["budget"] == 4 * 1100
    totals = content["runs"][0]["totals"]
    assert totals["gradient_evaluations"]["training"] == 4000 and totals["extra_gradients"] == 10


def test_sums_on_the_page_keep_all_their_digits(tmp_path: Path) -> None:
    run = written_run(tmp_path / "run", 2, 2, 3)
    (found,), _ = find_runs([run])
    for line in found.lines:
        line["gradient_evaluations"]["training"] = 1_234_567
    assert content_of([found], [])["runs"][0]["totals"]["gradient_evaluations"]["training"] == 3_703_701


def test_seeds_count_in_the_rounds_they_have() -> None:
    band = columns.band_of([np.array([1.0, 3.0, np.nan]), np.array([3.0])])
    assert band.rounds.tolist() == [1, 2] and band.mean.tolist() == [2, 3]
    assert band.low.tolist() == [1, 3] and band.high.tolist() == [3, 3]


@pytest.mark.parametrize("formula", ['"gradient_evaluations.', '["gradient_evaluations"]', "ddof=1", "stdev("])
def test_cost_and_spread_are_computed_in_one_module(formula: str) -> None:
    files = [path for path in SOURCE.rglob("*.py") if formula in path.read_text(encoding="utf-8")]
    assert [path.name for path in files if path.name != "columns.py"] == []


def test_the_page_derives_no_column_from_rounds() -> None:
    script = "".join(path.read_text(encoding="utf-8") for path in (SOURCE / "report/page").glob("*.js"))
    assert "Math.sqrt" not in script and "groups.gradient_evaluations" not in script
