"""The summary of a comparison by hand: the goal, the rarest class, leads paired by seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from isfl import layout
from isfl.experiment.cells import Cell
from isfl.experiment.compare import Summary, summarise
from isfl.report.table import accuracy_table, clock_table, cost_table
from tests.directories import tiny_config


def cell(out: Path, label: str, seed: int, accuracies: Sequence[float], counts: list[list[int]] | None) -> Cell:
    """A finished run of 100 gradients for training and 20 for sampling per round."""
    place = out / label / f"seed-{seed}"
    place.mkdir(parents=True)
    lines = [
        {
            "round": i,
            "accuracy_standard": accuracy,
            "accuracy_global": accuracy,
            "worst_client_accuracy": accuracy / 2,
            "recall": [0.5, 0.25 + seed / 10, None],
            "gradient_evaluations": {"training": 100, "sampling": 20},
            "seconds": {"training": 1.0, "sampling": 1.0},
        }
        for i, accuracy in enumerate(accuracies, start=1)
    ]
    (place / layout.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (place / layout.SPLIT).write_text(json.dumps({"client_counts": counts}))
    return Cell("", label, seed, tiny_config(), place)


def summary(out: Path, counts: list[list[int]] | None = None) -> list[Summary]:
    """A slow scheme that ends at 0.8 and 0.6; a fast one that ends 4 and 2 points lower; one that never gets there."""
    slow, fast, never = [(0.1, 0.5, 0.8), (0.1, 0.5, 0.6)], [(0.76, 0.7, 0.76), (0.56, 0.58, 0.58)], [(0.7,), (0.7,)]
    return summarise(
        [
            cell(out, label, seed, runs[seed], counts)
            for label, runs in (("slow", slow), ("fast", fast), ("never", never))
            for seed in (0, 1)
        ]
    )


def test_the_goal_is_a_share_of_the_last_accuracy_of_the_first_row_with_the_same_seed(tmp_path: Path) -> None:
    """95 % of 0.8 is 0.76, which the fast scheme has in its first round; 95 % of 0.6 is 0.57."""
    slow, fast, never = summary(tmp_path)
    assert (slow.rounds_to_goal, slow.samples_to_goal) == (3, 3 * 120)
    assert (fast.rounds_to_goal, fast.samples_to_goal) == (1.5, 1.5 * 120)
    assert (never.rounds_to_goal, never.samples_to_goal) == (None, None)
    _, rows = cost_table([slow, fast, never])
    assert [row[:3] for row in rows] == [("slow", "3", "360"), ("fast", "1.5", "180"), ("never", "-", "-")]


def test_simulated_seconds_are_shown_where_clients_have_latencies(tmp_path: Path) -> None:
    rows = summary(tmp_path / "plain")
    assert rows[0].simulated_seconds is None and clock_table(rows) is None
    accuracies = {"slow": (0.1, 0.5, 0.8), "fast": (0.1, 0.78, 0.78)}
    cells = [cell(tmp_path / "timed", label, 0, values, None) for label, values in accuracies.items()]
    for file in [own.out / layout.METRICS for own in cells]:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        timed = [line | {"simulated_seconds": 10.0 * line["round"]} for line in lines]
        file.write_text("".join(json.dumps(line) + "\n" for line in timed))
    slow, fast = summarise(cells)
    assert (slow.simulated_seconds, slow.simulated_seconds_to_goal) == (60, 60)
    assert (fast.simulated_seconds, fast.simulated_seconds_to_goal) == (60, 30)
    clock = clock_table([slow, fast])
    assert clock is not None and clock[0] == ("scheme", "simulated s", "simulated s\nto goal")
    assert clock[1] == [("slow", "60", "60"), ("fast", "60", "30")]


def test_leads_are_paired_by_seed_with_an_interval(tmp_path: Path) -> None:
    slow, fast, _ = summary(tmp_path)
    assert slow.against_first == {}
    pair = fast.against_first["accuracy_standard"]
    assert pair.by_seed == pytest.approx({0: -4.0, 1: -2.0}) and pair.mean == pytest.approx(-3)
    assert fast.against_first["worst_client_accuracy"].mean == pytest.approx(-1.5)
    assert cost_table([slow, fast])[1][1][3] == "-3.0 ± 12.7 (2/2)"
    assert json.loads((tmp_path / "slow/seed-0" / layout.SPLIT).read_text()) == {"client_counts": None}


def test_the_rarest_class_is_counted_over_all_clients(tmp_path: Path) -> None:
    """Class 1 has 3 samples, class 0 has 10; class 2 has 4 and no recall."""
    slow, *_ = summary(tmp_path, [[10, 0, 2], [0, 3, 2]])
    assert slow.rarest_class == pytest.approx(30.0) and slow.rarest_class_spread == pytest.approx(7.0710678)
    assert accuracy_table([slow])[1][0][4] == "30.0 ± 7.1"


def test_clients_that_keep_their_counts_have_no_rarest_class(tmp_path: Path) -> None:
    assert accuracy_table(summary(tmp_path)[:1])[1][0][4] == "-"
