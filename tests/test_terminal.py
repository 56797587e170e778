"""The progress display of a run."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from isfl.cli import terminal
from isfl.cli.terminal import BLOCKS, LETTERS, run_progress, sparkline


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([], 5, ""),
        ([0.5], 5, "▁"),
        ([0.3, 0.3, 0.3], 5, "▁▁▁"),
        ([0, 1], 5, "▁█"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([7, 0], 8, "█▁"),
        ([0, 2, 6, 8], 2, "▁█"),
        ([0, 0, 0, 7, 7], 2, "▁█"),
        ([0, math.nan, 7, math.inf], 5, "▁█"),
        ([1, 2, 3], 0, ""),
    ],
)
def test_sparklines_by_hand(values: list[float], width: int, drawn: str) -> None:
    assert sparkline(values, width) == drawn


@given(st.lists(st.floats(0, 1), max_size=60), st.integers(0, 30))
def test_a_sparkline_fits_and_reaches_both_ends(values: list[float], width: int) -> None:
    drawn = sparkline(values, width)
    assert len(drawn) == min(len(values), width) and set(drawn) <= set(BLOCKS)
    if len(values) <= width and len(set(values)) > 1:
        assert drawn[values.index(min(values))] == BLOCKS[0] and drawn[values.index(max(values))] == BLOCKS[-1]


def metrics(round_: int, accuracy: float | None) -> dict[str, Any]:
    return {
        "round": round_,
        "accuracy_standard": accuracy,
        "accuracy_global": accuracy,
        "train_loss": 1.0,
        "seconds": {"wall": 0.1},
        "refused": {},
    }


def shown(monkeypatch: pytest.MonkeyPatch, encoding: str, accuracies: list[float | None], live: bool = False) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace", newline="\n")
    console = Console(file=stream, force_terminal=live, width=120, highlight=False)
    monkeypatch.setattr(terminal, "console", console)
    with run_progress("title", len(accuracies)) as on_round:
        for i, accuracy in enumerate(accuracies):
            on_round(metrics(i + 1, accuracy))
    stream.flush()
    stream.seek(0)
    return stream.read()


def test_a_run_ends_with_the_course_of_its_evaluated_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, "utf-8", [0.1, None, 0.8, 0.5])
    assert text.splitlines()[-1] == "D_S ▁█▅ 10.0 to 50.0 %, best 80.0 %"


def test_an_ascii_terminal_gets_letters_instead_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, "ascii", [0.1, 0.8])
    assert text.splitlines()[-1] == f"D_S {LETTERS[0]}{LETTERS[-1]} 10.0 to 80.0 %, best 80.0 %"


@pytest.mark.parametrize("accuracies", [[0.5], [None, None]])
def test_no_course_of_fewer_than_two_rounds(monkeypatch: pytest.MonkeyPatch, accuracies: list[float | None]) -> None:
    assert "best" not in shown(monkeypatch, "utf-8", accuracies)


def test_on_a_terminal_a_short_sparkline_is_beside_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, "utf-8", [i / 100 for i in range(100)], live=True)
    last = [part for part in text.split("\n") if "100/100" in part][-1]
    assert sum(last.count(block) for block in BLOCKS) == terminal.BAR_SPARKS
