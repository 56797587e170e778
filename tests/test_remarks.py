"""Remarks under a reproduction: derived from the runs, only on rows that are there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isfl.report.reading import read_run
from isfl.report.remarks import remarks


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
def test_the_remark_on_rho_follows_from_the_runs(
    used: list[float | None], minimum: list[float], expected: str, tmp_path: Path
) -> None:
    lines = [
        {"round": i + 1, "rho_used": u, "rho_minimum": m} for i, (u, m) in enumerate(zip(used, minimum, strict=True))
    ]
    run = read_run(written_run(tmp_path / "run", {"metrics.jsonl": lines}), label="nr-0.98 · isfl-0.05")
    [text] = remarks("fig-rho", [run])
    assert text.startswith("The paper reports that rho and its theoretical minimum fall") and expected in text
    assert remarks("fig-rho", [replace(run, lines=run.lines[:1])]) == []


def test_the_remark_on_q_follows_from_the_runs(tmp_path: Path) -> None:
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


def test_notes_on_a_row_appear_only_with_that_row(tmp_path: Path) -> None:
    run = read_run(written_run(tmp_path / "run", {"metrics.jsonl": [{"round": 1}]}), label="nr-0.98 · fedavg")
    assert remarks("table2", [run]) == []
    [note] = remarks("table2", [run, replace(run, label="nr-0.98 · pj-unnormalised")])
    assert "stays close to FedAvg in all four columns" in note
    [note] = remarks("table2", [run, replace(run, label="nr-0.98 · isfedavg")])
    assert "biased" in note
