"""What the report says in words, compares by seed and shows of clients and confusions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from isfl import layout
from isfl.report.content import content_of
from isfl.report.reading import find_runs, read_run
from tests.directories import tiny_run, written_run


def rewritten(path: Path, **changes: Any) -> Path:
    """Change numbers of every round of a written run; a function gets the round's number."""
    lines = [json.loads(line) for line in (path / layout.METRICS).read_text().splitlines()]
    for line in lines:
        line |= {key: new(line["round"]) if callable(new) else new for key, new in changes.items()}
    (path / layout.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def compared(directory: Path, finals: Mapping[str, Sequence[float]], **changes: Any) -> dict[str, Any]:
    """Return the content of runs of these schemes whose D_S ends here, in percent, one number per seed."""
    for scheme, values in finals.items():
        for seed, value in enumerate(values):
            path = written_run(directory / scheme / f"seed-{seed}", 3, 4, 2, scheme, seed)
            rewritten(path, accuracy_standard=value / 100, **changes)
    runs, refused = find_runs([directory])
    return content_of(runs, refused)


def test_the_summary_says_who_is_ahead_of_whom_on_how_many_seeds(tmp_path: Path) -> None:
    finals = {"isfl": [80.0, 81.0, 82.0], "uniform-is": [81.0, 82.1, 83.2], "fedavg": [80.0, 84.0, 79.0]}
    best, second, third, *others = compared(tmp_path, finals)["summary"]
    assert best == ("uniform-is has the highest accuracy on the balanced test set (D_S): 82.1 % (mean of 3 seeds).")
    # Differences 1, 1.1, 1.2: the interval is 1.1 +- 4.3027 * 0.1 / sqrt(3).
    assert "isfl is 1.1 points behind uniform-is on D_S, on 3 of 3 seeds (95 % interval 0.9 to 1.3)." in (second, third)
    fedavg = next(line for line in (second, third) if line.startswith("fedavg"))
    assert "1.1 points behind uniform-is on D_S, on 2 of 3 seeds" in fedavg
    assert "it includes 0, so this may be chance" in fedavg
    # All have the same D_G and 10 % extra gradients, as written.
    assert "fedavg and isfl and uniform-is are highest with 20.0 %" in others[0]
    assert others[1].endswith("fedavg 10.0 %, isfl 10.0 %, uniform-is 10.0 %.")


def test_one_seed_is_called_one_seed(tmp_path: Path) -> None:
    content = compared(tmp_path, {"isfl": [80.0], "fedavg": [81.5]})
    best, other, *_ = content["summary"]
    assert best.endswith("81.5 % (one seed).")
    assert other == (
        "isfl is 1.5 points behind fedavg on D_S, with one seed, which cannot tell a difference from chance."
    )
    (row,) = content["side_by_side"]["differences"]["accuracy_standard"]["fedavg"]
    assert (row["mean"], row["half_width"], row["by_seed"]) == (pytest.approx(-1.5), None, [[0, pytest.approx(-1.5)]])


def test_equal_schemes_are_level(tmp_path: Path) -> None:
    _, other, *_ = compared(tmp_path, {"isfl": [80.0, 81.0], "fedavg": [80.0, 81.0]})["summary"]
    assert "is level with" in other and "includes 0" in other


def test_differences_are_paired_by_seed_in_both_directions(tmp_path: Path) -> None:
    found = compared(tmp_path, {"isfl": [80.0, 82.0, 84.0], "fedavg": [79.0, 82.5]})["side_by_side"]["differences"]
    (ours,), (theirs,) = found["accuracy_standard"]["fedavg"], found["accuracy_standard"]["isfl"]
    assert ours["label"] == "isfl" and theirs["label"] == "fedavg"
    assert dict(ours["by_seed"]) == pytest.approx({0: 1.0, 1: -0.5}), "seed 2 has no pair"
    assert (ours["mean"], ours["ahead"], theirs["ahead"]) == (pytest.approx(0.25), 1, 1)
    assert ours["half_width"] == pytest.approx(12.7062 * 0.75, rel=1e-4) and theirs["mean"] == pytest.approx(-0.25)


def test_runs_of_other_settings_are_not_compared(tmp_path: Path) -> None:
    paths = {group: written_run(tmp_path / group, 3, 4, 2) for group in ("nr-0.9", "nr-0.5")}
    cells = [{"group": group, "label": "isfl", "out": path.name} for group, path in paths.items()]
    (tmp_path / layout.PLAN).write_text(json.dumps({"cells": cells}))
    runs, _ = find_runs([tmp_path])
    content = content_of(runs, [])
    assert content["side_by_side"]["differences"] == {}
    assert [line.partition(":")[0] for line in content["summary"]] == ["nr-0.9", "nr-0.5"]
    assert all("is the only scheme" in line for line in content["summary"])


def test_two_runs_of_one_seed_have_no_pair(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written_run(tmp_path / name, 3, 4, 2, "isfl", 0)
    written_run(tmp_path / "c", 3, 4, 2, "fedavg", 0)
    runs, _ = find_runs([tmp_path])
    content = content_of(runs, [])
    assert content["side_by_side"]["differences"] == {}
    assert any("they share no seed" in line for line in content["summary"])


def test_the_summary_of_a_run_says_where_it_ended_and_what_it_cost(tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 3, 4, 4)
    accuracies = {1: 0.5, 2: 0.77, 3: 0.9, 4: 0.8}
    rewritten(path, accuracy_standard=accuracies.get, client_accuracy=[0.7, 0.4, 0.6], recall=[0.9, 0.8, 0.3, 0.9])
    ended, course, worst, cost, refused, honest = content_of([read_run(path)], [])["runs"][0]["summary"]
    assert ended.startswith("After 4 of 4 rounds, the model classifies 80.0 % of the balanced test set (D_S)")
    assert course == (
        "It first reached 95 % of that accuracy on D_S, 76.0 %, in round 2. Its best round was 3, with 90.0 %."
    )
    assert worst == (
        "The worst client is client 1 with 40.0 % on its own data; the median client has 60.0 %. "
        "The class with the lowest recall is class 2: 30.0 %."
    )
    assert cost == (
        "It cost 4,000 gradients for training and 10.0 % more for sampling, 48 s of wall time, 4.0 MB sent to the "
        "clients and 4.0 MB received from them."
    )
    assert refused == "1 answer was refused." and honest.startswith("This is one seed:")


def test_the_summary_of_a_run_counts_late_answers_and_simulated_seconds(tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 3, 4, 4)
    assert not any("had closed" in line for line in content_of([read_run(path)], [])["runs"][0]["summary"])
    rewritten(path, late=lambda round: [0, 2] if round == 1 else [], simulated_seconds=2.5)
    assert content_of([read_run(path)], [])["runs"][0]["summary"][4] == (
        "2 of 12 answers came after their round had closed. By the simulated latencies, its rounds took 10 s."
    )


def test_an_unfinished_run_is_summarised_as_far_as_it_is(tmp_path: Path) -> None:
    path = tiny_run(tmp_path / "run", rounds=2, training={"evaluate_every": 2})
    (shown,) = content_of([read_run(path)], [])["runs"]
    assert shown["summary"][0].startswith("After 2 of 3 rounds, the model classifies")
    rewritten(path, accuracy_standard=None)
    assert content_of([read_run(path)], [])["runs"][0]["summary"] == ["No round has been evaluated yet."]
    (path / layout.METRICS).write_text("")
    assert content_of([read_run(path)], [])["runs"][0]["summary"] == ["No round is done yet."]


# ---------------------------------------------------------------- clients and confusions


def test_a_real_run_records_what_the_new_figures_show(tmp_path: Path) -> None:
    run = read_run(tiny_run(tmp_path / "run", training={"participation": 0.5}))
    (shown,) = content_of([run], [])["runs"]
    for key in ("client_update_norm", "client_drift"):
        last = dict(shown["clients"][key]["last"])
        assert last.keys() == set(run.lines[-1]["participants"]) and len(last) == 2 and min(last.values()) > 0
        furthest = zip(shown["clients"][key]["ends"]["highest"], run.lines, strict=True)
        assert all(client in line["participants"] for client, line in furthest)
    matrices = shown["confusion"]["rounds"]
    assert [at["round"] for at in matrices] == [1, 2, 3]
    right = sum(matrices[-1]["counts"][i][i] for i in range(10)) / sum(map(sum, matrices[-1]["counts"]))
    assert right == pytest.approx(run.lines[-1]["accuracy_standard"])


def test_the_most_frequent_confusions_are_named(tmp_path: Path) -> None:
    path = rewritten(written_run(tmp_path / "run", 3, 3, 1), confusion=[[5, 5, 0], [1, 3, 0], [0, 0, 0]])
    (at,) = content_of([read_run(path)], [])["runs"][0]["confusion"]["rounds"]
    assert at["most"] == [[0, 1, 0.5], [1, 0, 0.25]]


@pytest.mark.parametrize("value", [None, [[1, 2], [3]], [[0.5, 0.5], [1, 0]], "all", [[1, 2], [3, -4]], [1, 2]])
def test_what_is_no_confusion_matrix_is_not_shown(value: object, tmp_path: Path) -> None:
    path = rewritten(written_run(tmp_path / "run", 3, 2, 2), confusion=value)
    assert content_of([read_run(path)], [])["runs"][0]["confusion"] is None


def test_confusion_matrices_of_long_runs_are_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read_run(written_run(tmp_path / "run", 3, 4, 9))
    monkeypatch.setattr("isfl.report.content.MOST_NUMBERS", 10 * 16 * 3)
    found = content_of([run], [])["runs"][0]["confusion"]
    assert [at["round"] for at in found["rounds"]] == [1, 5, 9] and found["left_out"] == 6


def test_old_runs_have_no_new_figures(tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 3, 4, 2)
    lines = [json.loads(line) for line in (path / layout.METRICS).read_text().splitlines()]
    for line in lines:
        for key in ("confusion", "client_update_norm", "client_drift", "client_accuracy"):
            del line[key]
    (path / layout.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (shown,) = content_of([read_run(path)], [])["runs"]
    assert shown["confusion"] is None and set(shown["clients"].values()) == {None}
    assert shown["summary"][0].startswith("After 2 of 2 rounds")
