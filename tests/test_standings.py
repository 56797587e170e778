"""Standings of sampling policies by hand: scores over settings, paired differences, what the protocol chooses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from isfl import layout
from isfl.experiment.cells import Cell
from isfl.experiment.policy import WINNER
from isfl.experiment.screen import completed, stopped_at
from isfl.experiment.standings import Standing, gains, over_settings, standings, winner
from isfl.report.gains import gains_picture
from isfl.report.pictures import NotDrawnError
from isfl.report.policy import markdown, screen_markdown, screen_picture, standings_table
from isfl.report.reading import read_run
from tests.directories import tiny_config

SETTINGS = ("a", "b")


def cell(
    out: Path, setting: str, label: str, seed: int, standard: Sequence[float], *, sampling: int = 0, rounds: int = 0
) -> Cell:
    """A run of 100 gradients for training per round and two participants; D_G is 10 points above D_S."""
    place = out / setting / label / f"seed-{seed}"
    place.mkdir(parents=True)
    lines = [
        {
            "round": i,
            "accuracy_standard": accuracy,
            "accuracy_global": accuracy + 0.1,
            "worst_client_accuracy": accuracy / 2,
            "recall": [accuracy, accuracy],
            "gradient_evaluations": {"training": 100, "sampling": sampling},
            "seconds": {"training": 1.0, "sampling": 1.0},
            "participants": [0, 1],
            "bytes_up": 1000,
            "bytes_down": 3000,
        }
        for i, accuracy in enumerate(standard, start=1)
    ]
    (place / layout.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (place / layout.SPLIT).write_text(json.dumps({"client_counts": [[1, 2]]}))
    return Cell(setting, label, seed, tiny_config(training={"rounds": rounds or len(standard)}), place)


def flat(out: Path, label: str, by_seed: Sequence[float], sampling: int = 0) -> list[Cell]:
    """Runs of two rounds with this D_S on the first setting, and 10 points more on the second."""
    return [
        cell(out, setting, label, seed, [level + i / 10] * 2, sampling=sampling)
        for i, setting in enumerate(SETTINGS)
        for seed, level in enumerate(by_seed)
    ]


def by_label(rows: Sequence[Standing]) -> dict[str, Standing]:
    return {row.label: row for row in rows}


def test_the_score_is_the_mean_of_both_accuracies_over_settings_and_seeds(tmp_path: Path) -> None:
    cells = [*flat(tmp_path, "fedavg", (0.30, 0.40)), *flat(tmp_path, "t-0.5", (0.40, 0.52), sampling=2)]
    best, fedavg = standings(cells)
    assert (best.label, best.seeds) == ("t-0.5", 2)
    assert best.score == pytest.approx(100 * (0.46 + 0.05 + 0.05))
    assert dict(best.by_setting) == pytest.approx({"a": 51.0, "b": 61.0})
    assert best.against_fedavg is not None and dict(best.against_fedavg.by_seed) == pytest.approx({0: 10, 1: 12})
    assert best.against_best is None and fedavg.against_fedavg is None
    assert fedavg.against_best is not None and fedavg.against_best.mean == pytest.approx(-11)
    assert (best.extra_gradients, best.kilobytes) == (2.0, 2.0)
    headings, rows = standings_table([best, fedavg])
    assert headings[:4] == ("policy", "score", "a", "b")
    assert rows[0][:5] == ("t-0.5", "56.0", "51.0", "61.0", "+11.0 ± 12.7 (2/2)")


def test_only_seeds_that_a_policy_has_on_every_setting_count(tmp_path: Path) -> None:
    cells = [*flat(tmp_path, "fedavg", (0.3, 0.4)), *flat(tmp_path, "t-0.5", (0.5, 0.9))]
    missing = [cell for cell in cells if (cell.group, cell.label, cell.seed) != ("b", "t-0.5", 1)]
    row = by_label(standings(missing))["t-0.5"]
    assert row.seeds == 1 and row.score == pytest.approx(60) and row.by_setting["a"] == pytest.approx(55)
    elsewhere = [cell for cell in cells if (cell.group, cell.label) != ("b", "t-0.5")]
    assert [row.label for row in standings(elsewhere)] == ["fedavg"]


def test_an_unfinished_run_does_not_count(tmp_path: Path) -> None:
    cells = flat(tmp_path, "fedavg", (0.3,))
    cells += [cell(tmp_path, setting, "t-0.5", 0, [0.9], rounds=2) for setting in SETTINGS]
    assert [row.label for row in standings(cells)] == ["fedavg"]
    assert winner(standings(cells)) is None


def test_the_highest_score_wins_if_nothing_is_level_with_it(tmp_path: Path) -> None:
    cells = [*flat(tmp_path, "bv-10", (0.50, 0.51, 0.52), sampling=1), *flat(tmp_path, "t-0.5", (0.40, 0.41, 0.42))]
    chosen = winner(standings([*cells, *flat(tmp_path, "isfl", (0.7, 0.7, 0.7))]))
    assert chosen is not None and chosen.label == "bv-10", "a reference is never chosen"


def test_among_policies_within_one_standard_error_cost_decides_then_simplicity(tmp_path: Path) -> None:
    """The differences to the best are 2, -1 and 2 points: their mean, 1, is its standard error."""
    best = flat(tmp_path, "bv-10", (0.50, 0.50, 0.50), sampling=1)
    level = flat(tmp_path, "t-0.5-cal", (0.48, 0.51, 0.48))
    assert by_label(standings([*best, *level]))["t-0.5-cal"].level
    chosen = winner(standings([*best, *level]))
    assert chosen is not None and chosen.label == "t-0.5-cal", "no extra gradients"
    behind = flat(tmp_path, "t-0.5", (0.48, 0.50, 0.48))
    assert not by_label(standings([*best, *level, *behind]))["t-0.5"].level
    chosen = winner(standings([*best, *level, *flat(tmp_path, "shrunk-50", (0.48, 0.51, 0.48))]))
    assert chosen is not None and chosen.label == "shrunk-50", "no calibration to set"


def test_a_policy_without_a_common_seed_is_not_level_with_the_best(tmp_path: Path) -> None:
    best = [cell(tmp_path, setting, "bv-10", 0, [0.5], sampling=1) for setting in SETTINGS]
    cheaper = [cell(tmp_path, setting, "t-0.5", 1, [0.1]) for setting in SETTINGS]
    rows = standings([*best, *cheaper])
    assert [(row.label, row.against_best, row.level) for row in rows] == [("bv-10", None, True), ("t-0.5", None, False)]
    chosen = winner(rows)
    assert chosen is not None and chosen.label == "bv-10"


def test_the_text_has_all_settings_together_and_each_one(tmp_path: Path) -> None:
    cells = [*flat(tmp_path, "t-0.5", (0.5, 0.5)), *flat(tmp_path, "fedavg", (0.3, 0.4))]
    text = markdown({"title": "policy-choose"}, cells, cells, [])
    assert text.startswith("# policy-choose\n\n## All settings\n") and "rule chooses `t-0.5`" in text
    first = text.split("## a\n")[1]
    assert "| fedavg | 35.0 ± 7.1 |" in first and first.index("| fedavg") < first.index("| t-0.5")
    assert "Goal: the last D_S of fedavg with the same seed" in first and "## b\n" in first


def test_gains_are_paired_by_seed_on_each_setting_and_by_setting_over_all(tmp_path: Path) -> None:
    """A setting on which FedAvg has no run of the same seed is left out."""
    cells = [cell(tmp_path, "a", "fedavg", seed, [0.3 + seed / 10]) for seed in (0, 1)]
    cells += [cell(tmp_path, "a", "t-0.5", seed, [0.4 + seed / 5]) for seed in (0, 1, 2)]
    cells += [cell(tmp_path, "b", "fedavg", 0, [0.5]), cell(tmp_path, "b", "t-0.5", 0, [0.45])]
    cells += [cell(tmp_path, "c", "fedavg", 0, [0.5]), cell(tmp_path, "c", "t-0.5", 1, [0.9])]
    measured = gains(cells)
    assert list(measured) == ["t-0.5"] and list(measured["t-0.5"]) == ["a", "b"]
    assert dict(measured["t-0.5"]["a"].by_seed) == pytest.approx({0: 10.0, 1: 20.0})
    every = over_settings(measured["t-0.5"])
    assert every is not None and every.mean == pytest.approx(5.0) and (every.seeds, every.ahead) == (2, 1)
    text = markdown({"title": "policy-confirm"}, cells, [], [])
    shown = [line for line in text.splitlines() if line.startswith("| ")]
    assert shown == [
        "| setting | t-0.5 |",
        "| --- | --- |",
        "| a | +15.0 ± 63.5 (2/2) |",
        "| b | -5.0 |",
        "| all settings | +5.0 ± 127.1 (1/2) |",
    ]


def test_the_winner_is_compared_with_every_other_policy_over_the_settings(tmp_path: Path) -> None:
    """Both are ahead of FedAvg; Uniform-IS is 2 points behind the winner on `a` and 4 ahead of it on `b`."""
    levels = {"fedavg": (0.30, 0.30), "uniform-is": (0.48, 0.54), WINNER: (0.50, 0.50)}
    cells = [
        cell(tmp_path, setting, label, 0, [level])
        for label, by_setting in levels.items()
        for setting, level in zip(SETTINGS, by_setting, strict=True)
    ]
    text = markdown({"title": "policy-confirm"}, cells, [], [])
    rows = [line for line in text.split("| worst setting |")[1].splitlines() if line.startswith("| ")]
    assert rows[1:] == [
        "| fedavg | -20.0 ± 0.0 (2/2) | -20.0 (a) | -20.0 (a) |",
        "| uniform-is | +1.0 ± 38.1 (1/2) | +4.0 (b) | -2.0 (a) |",
    ]


def test_the_picture_has_a_point_per_setting_at_its_skew(tmp_path: Path) -> None:
    """Two classes and two clients, of which the second holds both equally: p = (5/8, 3/8) and (3/4, 1/4)."""
    cells = [*flat(tmp_path, "fedavg", (0.3, 0.4)), *flat(tmp_path, "t-0.5", (0.4, 0.45))]
    for one in cells:
        (one.out / layout.SPLIT).write_text(
            json.dumps({"client_counts": [[3, 1], [2, 2]] if one.group == "a" else [[4, 0], [2, 2]]})
        )
        (one.out / layout.CONFIG).write_text(json.dumps({"seed": one.seed, "data": {"name": "digits"}}))
    (axis,) = gains_picture([read_run(one.out, label=f"{one.group} · {one.label}") for one in cells]).axes
    (line,) = [each for each in axis.lines if each.get_label() == "t-0.5"]
    np.testing.assert_allclose(np.array(line.get_xdata()), [2 * (1 / 8) ** 2, 2 * (1 / 4) ** 2])
    np.testing.assert_allclose(np.array(line.get_ydata()), [7.5, 7.5])
    with pytest.raises(NotDrawnError, match="FedAvg and another policy"):
        gains_picture([read_run(one.out, label=f"{one.group} · {one.label}") for one in cells if one.label != "fedavg"])


# ---------------------------------------------------------------- the screen


def screened(out: Path) -> list[Cell]:
    """After 4 rounds `t-0.25` is dropped; `t-0.5` and a reference are in their eighth round on one setting only."""
    rounds = {"fedavg": (8, 8), "t-0.5": (8, 7), "t-0.25": (4, 4)}
    levels = {"fedavg": 0.3, "t-0.5": 0.5, "t-0.25": 0.4}
    return [
        cell(out, setting, label, 0, [levels[label] + i / 100 for i in range(1, done[k] + 1)], rounds=12)
        for label, done in rounds.items()
        for k, setting in enumerate(SETTINGS)
    ]


def test_the_screen_shows_complete_stages_alone(tmp_path: Path) -> None:
    cells = screened(tmp_path)
    (stage,) = completed(cells)
    assert stage.rounds == 4 and stage.kept == ["t-0.5"]
    text = screen_markdown({"title": "policy-screen"}, cells, [], [])
    assert "| t-0.5 | 58.5 | 53.5 / 63.5 (27) |" in text and "after 8" not in text
    assert "| fedavg (reference) | 38.5 |" in text and "| t-0.25 | 48.5 |" in text
    assert [stopped_at(cell) for cell in cells] == [8, 8, 8, None, 4, 4]


def test_a_screen_whose_first_stage_is_not_complete_shows_the_runs_that_are_at_its_end(tmp_path: Path) -> None:
    cells = [
        cell(tmp_path, "a", label, 0, [level] * 4, rounds=12) for label, level in (("fedavg", 0.3), ("t-0.5", 0.5))
    ]
    cells += [cell(tmp_path, "b", "fedavg", 0, [0.3] * 3, rounds=12)]
    text = screen_markdown({"title": "policy-screen"}, cells, [], [])
    assert "2 of 3 runs have 4 rounds" in text
    rows = [line for line in text.splitlines() if line.startswith("| a ")]
    assert rows == ["| a | t-0.5 | 55.0 | 50.0 / 60.0 (25) |", "| a | fedavg (reference) | 35.0 | 30.0 / 40.0 (15) |"]


def test_runs_with_all_rounds_have_a_table_while_the_first_stage_is_not_complete(tmp_path: Path) -> None:
    cells = [cell(tmp_path, at, "t-0.5", 0, [0.3] * 10 + [0.5] * 2, sampling=1) for at in SETTINGS]
    cells += [cell(tmp_path, "a", "bv-3", 0, [0.9] * 12), cell(tmp_path, "b", "bv-3", 0, [0.9] * 2, rounds=12)]
    text = screen_markdown({"title": "policy-screen"}, cells, [], [])
    rows = [line for line in text.split("Runs with all their rounds")[1].splitlines() if line.startswith("| ")]
    assert rows == [
        "| policy | a: D_S / D_G (worst) | b: D_S / D_G (worst) | score | extra % |",
        "| --- | --- | --- | --- | --- |",
        "| t-0.5 | 50.0 / 60.0 (25) | 50.0 / 60.0 (25) | 55.0 | 1.0 |",
        "| bv-3 | 90.0 / 100.0 (45) | - | - | 0.0 |",
    ]


def test_a_policy_that_was_dropped_has_no_later_score(tmp_path: Path) -> None:
    cells = screened(tmp_path)
    with (cells[3].out / layout.METRICS).open("a") as file:
        file.write(json.dumps(cells[2].lines[-1]) + "\n")
    assert [stage.rounds for stage in completed(cells)] == [4, 8]
    rows = [line for line in screen_markdown({"title": ""}, cells, [], []).splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[:3] for row in rows[2:]] == [
        ["| t-0.5", "58.5", "62.5"],
        ["| fedavg (reference)", "38.5", "42.5"],
        ["| t-0.25", "48.5", "-"],
    ]
    runs = [read_run(cell.out, label=f"{cell.group} · {cell.label}") for cell in cells]
    figure = screen_picture(runs)
    shown = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert shown == ["t-0.25", "fedavg (reference)", "t-0.5"]
    assert [len(np.array(line.get_xdata())) for line in figure.axes[0].lines] == [3, 2, 0]
