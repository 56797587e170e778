"""Figures of unfinished, damaged, foreign and too many runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isfl.errors import UserError
from isfl.report import figures, pictures, sweeps
from isfl.report.reading import find_runs, told_apart
from isfl.report.split import convergence_and_split, federation
from tests.commands import isfl


@pytest.fixture
def copied(scheme_runs: Path, tmp_path: Path) -> Path:
    """A copy of the full runs that a test may damage."""
    return Path(shutil.copytree(scheme_runs / "full", tmp_path / "full"))


def test_unfinished_and_damaged_runs_show_what_they_have(copied: Path, tmp_path: Path) -> None:
    cut, torn, lost, words = (copied / f"{s}/seed-{n}" for s in ("fedavg", "isfl") for n in (0, 1))
    first = (cut / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (cut / "metrics.jsonl").write_text(first)
    (cut / "model.safetensors").unlink()
    (torn / "metrics.jsonl").write_text(first + '{"round": 2, "accur')
    (torn / "probabilities.jsonl").write_bytes(b"\xff\xfe\x00")
    (lost / "split.json").write_text('{"client_counts": [[1, "x"]], "class_names": 5}')
    (lost / "probabilities.jsonl").write_text('{"round": 1, "probabilities": {"0": [0.5, 0.5], "1": "all"}}\n')
    (words / "metrics.jsonl").write_text('{"round": 1, "accuracy_standard": "good", "gradient_evaluations": 3}\n')
    result = isfl("figures", "full", "-o", "drawn", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "note: full/fedavg/seed-0: unfinished: 1 of 3 rounds are done" in result.stdout
    assert "note: full/isfl/seed-0: split.json: client_counts is not a table of numbers" in result.stdout
    assert (tmp_path / "drawn/convergence.pdf").exists() and (tmp_path / "drawn/split.pdf").exists()
    assert not result.stderr


def test_unfinished_runs_are_not_points_of_a_sweep(scheme_runs: Path) -> None:
    runs, _ = find_runs([scheme_runs / "full/isfl", scheme_runs / "half"])
    runs = [replace(found, finished=found.path != scheme_runs / "half") for found in runs]
    with pytest.raises(pictures.NotDrawnError, match="no finished runs differ"):
        sweeps.sampling_ratio(runs)


@pytest.mark.parametrize("content", ["{}", "[1, 2]", '{"scheme": "isfl", "training": 7, "seed": []}', "no JSON"])
def test_foreign_directories_are_refused_in_one_line(content: str, scheme_runs: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/config.json").write_text(content)
    (tmp_path / "empty").mkdir()
    alone = isfl("figures", "foreign", "empty", cwd=tmp_path)
    assert alone.returncode == 2 and alone.stderr.startswith("error: ") and alone.stderr.count("\n") == 1
    assert not (tmp_path / "figures").exists()
    runs, _ = find_runs([tmp_path / "foreign", tmp_path / "empty", scheme_runs / "half"])
    assert scheme_runs / "half" in [found.path for found in runs]


@pytest.mark.parametrize("given", ["missing", "file"])
def test_a_path_that_is_not_a_directory_is_refused_in_one_line(given: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    result = isfl("figures", given, cwd=tmp_path)
    assert result.returncode == 2 and result.stderr == f"error: {given}: no such directory\n"


def test_an_output_path_that_is_a_file_is_refused(scheme_runs: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    runs, _ = find_runs([scheme_runs / "half"])
    with pytest.raises(UserError, match="taken: figures cannot be written there"):
        figures.write_figures(runs, tmp_path / "taken")


def test_names_are_never_read_as_formulas(scheme_runs: Path, tmp_path: Path) -> None:
    [found], _ = find_runs([scheme_runs / "half"])
    odd = replace(found, label=r"$\frac$", class_names=tuple(f"${i}$\\oops" for i in range(10)))
    assert "q" in figures.write_figures([odd, replace(odd, label="$2 $3")], tmp_path)[0]


def test_a_run_given_twice_counts_once(scheme_runs: Path) -> None:
    runs, _ = find_runs([scheme_runs / "full", scheme_runs / "full/isfl", scheme_runs / "full/isfl/seed-0"])
    assert len(runs) == 4


def test_more_than_fits_on_a_page_is_refused_not_cut(scheme_runs: Path) -> None:
    [found], _ = find_runs([scheme_runs / "half"])
    crowd = [replace(found, label=f"group {i} · isfl") for i in range(pictures.MOST_PANELS + 1)]
    for draw in (
        pictures.convergence,
        convergence_and_split,
        pictures.rho,
        pictures.probabilities,
        pictures.cost,
        federation,
    ):
        with pytest.raises(pictures.NotDrawnError, match="too many"):
            draw(crowd)


def test_unknown_settings_do_not_distinguish_labels() -> None:
    settings: Sequence[dict[str, Any]] = [{"a": 1}, {}, {"a": 1}]
    assert told_apart(["x", "x", "x"], settings) == ["x", "x", "x"]
    assert told_apart(["x", "x"], [{"a": 1}, {"a": 2}]) == ["x (a=1)", "x (a=2)"]
