"""The report of complete, unfinished and damaged run directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isfl import layout
from isfl.cli import main
from isfl.errors import UserError
from isfl.experiment.directory import RunDirectory
from isfl.report.content import content_of
from isfl.report.page import page, write_page
from isfl.report.reading import find_runs, read_run
from tests.directories import tiny_run, written_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return written_run(tmp_path / "run", clients=3, classes=4, rounds=5)


def lines_of(path: Path, name: str = "metrics.jsonl") -> list[str]:
    return (path / name).read_text().splitlines(keepends=True)


def test_a_whole_run_is_read_without_a_complaint(whole: Path) -> None:
    found = read_run(whole)
    assert found.problems == () and found.finished and not found.under_way
    assert (found.scheme, found.seed, found.rounds, len(found.lines), len(found.probabilities)) == ("isfl", 0, 3, 3, 3)
    assert found.counts is not None and found.target is not None and found.counts.shape == found.target.shape == (4, 10)
    (shown,) = content_of([found], [])["runs"]
    assert shown["series"]["accuracy_standard"] == pytest.approx([line["accuracy_standard"] for line in found.lines])
    assert shown["recall"] == pytest.approx(found.lines[-1]["recall"])
    assert shown["groups"]["gradient_evaluations"]["sampling"][0] > 0


def test_the_accuracy_of_clients_is_shown_as_a_distribution(run: Path) -> None:
    lines = [json.loads(line) for line in lines_of(run)]
    lines[-2]["client_accuracy"] = [0.2, None, 0.4]
    lines[-1]["client_accuracy"] = None  # a round without evaluation
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = content_of([read_run(run)], [])["runs"][0]["clients"]["client_accuracy"]
    assert [shown["quantiles"][name][-2] for name in shown["quantiles"]] == pytest.approx([0.2, 0.25, 0.3, 0.35, 0.4])
    assert all(values[-1] is None and values[0] is not None for values in shown["quantiles"].values())
    assert (shown["round"], shown["last"]) == (4, [[0, 0.2], [2, 0.4]])
    assert (shown["ends"]["lowest"][-2:], shown["ends"]["highest"][-2:]) == ([0, None], [2, None])


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"where": "client"},
        {"where": "client", "lipschitz_at": "client"},
        {"solver": "exact", "target_floor": 0.3},
        {"first_round": "target"},
    ],
    ids=str,
)
def test_recorded_probabilities_follow_from_the_recorded_lipschitz_values(tmp_path: Path, sampling: Any) -> None:
    scheme, training = {"name": "isfl", "sampling": sampling}, {"rounds": 2, "participation": 0.5}
    tiny_run(tmp_path / "run", scheme, training=training, target={"kind": "uniform"})
    (shown,) = content_of([read_run(tmp_path / "run")], [])["runs"]
    first, second = shown["detail"]["rounds"]
    assert first["measured"] == [0, 0, 0, 0] and first.get("gamma", [None] * 4) == [None] * 4
    took_part = [k for k in range(4) if k in first["participants"]]
    assert [k for k in range(4) if second["measured"][k] == 1] == took_part and len(took_part) == 2
    assert second["doubt"] == [False] * 4
    assert ("level" in second) == (sampling.get("solver") != "exact")


def test_the_class_that_stops_the_move_is_at_its_floor(run: Path) -> None:
    detail = content_of([read_run(run)], [])["runs"][0]["detail"]
    for k in range(3):
        at = detail["rounds"][-1]
        i = at["stops"][k]
        assert at["gamma"][k] > 0 and at["level"][k][i] == pytest.approx(detail["floor"][k][i], abs=1e-4)
        assert all(level >= floor - 1e-4 for level, floor in zip(at["level"][k], detail["floor"][k], strict=True))


def test_changed_probabilities_are_reported_as_inconsistent(run: Path) -> None:
    lines = [json.loads(line) for line in lines_of(run, "probabilities.jsonl")]
    lines[3]["probabilities"]["1"] = [0.25] * 4
    (run / "probabilities.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rounds = content_of([read_run(run)], [])["runs"][0]["detail"]["rounds"]
    assert [at["doubt"] for at in rounds[3:]] == [[False, True, False], [False, False, False]]


def test_schemes_without_lipschitz_values_show_what_they_draw(tmp_path: Path) -> None:
    tiny_run(tmp_path / "run", "uniform-is", training={"rounds": 1})
    detail = content_of([read_run(tmp_path / "run")], [])["runs"][0]["detail"]
    held = np.array(detail["local"]) > 0
    assert detail["floor"] is None and "gamma" not in detail["rounds"][0]
    assert np.array(detail["rounds"][0]["probabilities"]) == pytest.approx(
        held / held.sum(axis=1, keepdims=True), abs=1e-3
    )


def test_limitations_of_the_numbers_are_shown(run: Path) -> None:
    assert content_of([read_run(run)], [])["runs"][0]["warnings"] == []
    lines = [json.loads(line) for line in lines_of(run)]
    for line in lines[:2]:
        line["bound"]["step_condition"] = 1.5
        line["dropped_samples"], line["clipped_values"] = 3, 5
    for line in lines:
        line["accuracy_global"] = None
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    described = json.loads((run / "split.json").read_text())
    (run / "split.json").write_text(json.dumps(described | {"public_counts": [5, 0, 5, 5]}))
    (shown,) = content_of([read_run(run)], [])["runs"]
    public, dropped, clipped, step, unmeasured = shown["warnings"]
    assert "beyond secure.range and clipped in 2 rounds" in clipped
    assert "no sample of class 1" in public and "in 2 rounds, first in round 1" in dropped
    assert "in 2 of 5 rounds" in step and "(D_G) was not measured" in unmeasured
    assert shown["refused"] == [[2, "1", "did not answer"]]


# ---------------------------------------------------------------- unfinished, damaged, foreign


def test_a_stopped_run_and_an_active_run_are_distinguished(tmp_path: Path) -> None:
    path = tiny_run(tmp_path / "run", rounds=1)
    assert read_run(path).problems == ("unfinished: 1 of 3 rounds are done",)
    with RunDirectory(path).locked():
        found = read_run(path)
        assert found.under_way and found.problems == ()
    assert not read_run(path).under_way


def _cut(name: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], object]:
    return lambda path: (path / name).write_text("".join(change(lines_of(path, name))))


DAMAGE: dict[str, tuple[Callable[[Path], object], str | None, int]] = {
    "half a line at the end": (_cut("metrics.jsonl", lambda rows: [*rows[:-1], rows[-1][:40]]), None, 4),
    "a broken line": (
        _cut("metrics.jsonl", lambda rows: [*rows[:2], "{broken\n", *rows[3:]]),
        "metrics.jsonl: line 3 is damaged; later lines are not shown",
        2,
    ),
    "a line that is missing": (
        _cut("metrics.jsonl", lambda rows: [rows[0], *rows[2:]]),
        "metrics.jsonl: line 2 is damaged; later lines are not shown",
        1,
    ),
    "no metrics": (lambda path: (path / "metrics.jsonl").unlink(), "metrics.jsonl is missing", 0),
    "no probabilities": (lambda path: (path / "probabilities.jsonl").unlink(), "probabilities.jsonl is missing", 5),
    "no split": (lambda path: (path / "split.json").unlink(), "split.json is missing", 5),
    "a broken split": (lambda path: (path / "split.json").write_text("{"), "split.json cannot be read", 5),
    "a split of something else": (
        lambda path: (path / "split.json").write_text("[]"),
        "split.json is not a JSON object",
        5,
    ),
    "no configuration": (lambda path: (path / "config.json").unlink(), "config.json is missing", 5),
    "a broken configuration": (
        lambda path: (path / "config.json").write_bytes(b"\xff"),
        "config.json cannot be read",
        5,
    ),
    "counts that are no table": (
        lambda path: (path / "split.json").write_text('{"client_counts": [[1, 2], [3]], "class_names": ["a", "b"]}'),
        "split.json: client_counts is not a table of numbers",
        5,
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_the_intact_part_of_a_damaged_run_is_shown(run: Path, what: str, tmp_path: Path) -> None:
    damage, complaint, rounds = DAMAGE[what]
    damage(run)
    found = read_run(run)
    assert len(found.lines) == rounds
    assert found.problems == () if complaint is None else any(p.startswith(complaint) for p in found.problems)
    written = write_page(content_of([found], []), tmp_path / "report.html")
    assert "<!doctype html>" in written.read_text()


def test_old_lines_without_some_numbers_are_shown(run: Path) -> None:
    kept = [{"round": n + 1, "accuracy_standard": 0.5} for n in range(5)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    (shown,) = content_of([read_run(run)], [])["runs"]
    assert shown["series"]["accuracy_standard"] == [0.5] * 5 and shown["series"]["train_loss"] == [None] * 5


def test_directories_with_nothing_to_show_are_refused_by_name(tmp_path: Path, run: Path) -> None:
    empty, foreign, dead = tmp_path / "empty", tmp_path / "foreign", tmp_path / "dead"
    for directory in (empty, foreign, dead):
        directory.mkdir()
    (foreign / "notes.txt").write_text("not a run")
    (dead / "config.json").write_text("{")
    (dead / "metrics.jsonl").write_text("")
    for path, why in ((empty, "not a run directory"), (foreign, "not a run directory"), (dead, "nothing in it can be")):
        with pytest.raises(UserError, match=f"{path.name}: {why}"):
            find_runs([path])
    with pytest.raises(UserError, match="nowhere: no such directory"):
        find_runs([tmp_path / "nowhere"])
    found, refused = find_runs([empty, run, dead])
    assert len(found) == 1 and len(refused) == 2


# ---------------------------------------------------------------- several


def test_runs_are_found_below_a_directory_and_in_a_plan(tmp_path: Path) -> None:
    for scheme in ("isfl", "fedavg"):
        for seed in (0, 1):
            written_run(tmp_path / "all" / scheme / f"seed-{seed}", 2, 3, 2, scheme, seed)
    found, _ = find_runs([tmp_path / "all"])
    assert [(run.label, run.seed) for run in found] == [("fedavg", 0), ("fedavg", 1), ("isfl", 0), ("isfl", 1)]
    cells = [{"group": "nr-0.9", "label": "ours", "out": "isfl/seed-1"}, {"group": "", "label": "gone", "out": "x"}]
    (tmp_path / "all" / layout.PLAN).write_text(json.dumps({"cells": cells}))
    (planned,), _ = find_runs([tmp_path / "all"])
    assert (planned.label, planned.name) == ("nr-0.9 · ours", "isfl/seed-1")


def test_runs_of_one_scheme_with_other_settings_have_other_labels(tmp_path: Path) -> None:
    paths = [tiny_run(tmp_path / str(n), training={"rounds": 1, "local_epochs": n}) for n in (1, 2)]
    found, _ = find_runs(paths)
    assert [run.label for run in found] == ["isfl (training.local_epochs=1)", "isfl (training.local_epochs=2)"]


# ---------------------------------------------------------------- the file


def test_large_runs_are_thinned_evenly(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isfl.report.content.MOST_NUMBERS", 3 * 4 * 3 * 3)
    detail = content_of([read_run(run)], [])["runs"][0]["detail"]
    assert detail["clients"] < 3 and detail["left_out"]["clients"] == 3 - detail["clients"]
    monkeypatch.setattr("isfl.report.detail.FEWEST_ROUNDS", 2)
    detail = content_of([read_run(run)], [])["runs"][0]["detail"]
    assert [at["round"] for at in detail["rounds"]] == [1, 3, 5] and detail["left_out"] == {"clients": 0, "rounds": 2}
    monkeypatch.setattr("isfl.report.content.MOST_NUMBERS", 5)
    assert content_of([read_run(run)], [])["runs"][0]["detail"] is None


def test_a_page_of_twenty_clients_and_a_hundred_classes_stays_small(tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", clients=20, classes=100, rounds=25)
    written = write_page(content_of([read_run(path)], []), tmp_path / "report.html")
    assert 500_000 < written.stat().st_size < 15_000_000
    detail = json.loads(written.read_text().split('id="data">')[1].split("</script>")[0])["runs"][0]["detail"]
    assert len(detail["rounds"]) == 25 and detail["left_out"] == {"clients": 0, "rounds": 0}


def test_names_cannot_break_out_of_the_page(run: Path) -> None:
    described = json.loads((run / "split.json").read_text())
    described["class_names"] = ["</script><script>alert(1)</script>", "<!--", "$DATA", "ü"]
    (run / "split.json").write_text(json.dumps(described))
    text = page(content_of([read_run(run)], []))
    assert "<script>alert" not in text and "<!--" not in text.split('id="data">')[1].split("</script>")[0]


def test_the_command_writes_a_page_and_lists_problems(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "new" / "report.html"
    with pytest.raises(SystemExit) as ending:
        main(["report", str(run), str(tmp_path / "empty"), "-o", str(out)])
    said = capsys.readouterr().out
    assert ending.value.code in (0, None) and "empty: not a run directory" in said and "1 run in" in said
    assert out.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("runs", "out", "complaint"),
    [
        (["empty"], "report.html", "empty: not a run directory"),
        (["nowhere"], "report.html", "nowhere: no such directory"),
        (["run"], "empty", "is a directory; give the file to write"),
        (["run"], "run/config.json/report.html", "the report cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str], runs: list[str], out: str, complaint: str
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as ending:
        main(["report", *(str(tmp_path / name) for name in runs), "-o", str(tmp_path / out)])
    captured = capsys.readouterr()
    assert ending.value.code == 2 and complaint in captured.err and captured.err.count("\n") == 1
