"""Growing files are read incrementally: no line is parsed twice, and none is missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isfl import layout
from isfl.experiment.cells import Cell
from isfl.lines import LineReader, read_lines
from isfl.report.live import Viewer
from tests.directories import tiny_config, written_run


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that receives every line parsed from now on."""
    seen: list[str] = []
    real = json.loads

    def loads(text: str) -> Any:
        seen.extend([text] if text.startswith('{"round"') else [])
        return real(text)

    monkeypatch.setattr(json, "loads", loads)
    return seen


def written(*rounds: int, extra: str = "") -> str:
    return "".join(json.dumps({"round": number, "extra": extra}) + "\n" for number in rounds)


def rounds_of(found: list[dict[str, Any]]) -> list[int]:
    return [line["round"] for line in found]


def test_an_unchanged_file_is_not_parsed_again(tmp_path: Path, parsed: list[str]) -> None:
    (tmp_path / "file").write_text(written(1, 2, 3))
    reader = LineReader(tmp_path / "file")
    assert rounds_of(reader.read()) == [1, 2, 3] and len(parsed) == 3
    assert rounds_of(reader.read()) == [1, 2, 3] and len(parsed) == 3


def test_only_new_lines_are_parsed_and_half_lines_wait(tmp_path: Path, parsed: list[str]) -> None:
    file = tmp_path / "file"
    reader = LineReader(file)
    assert reader.read() == []
    file.write_text(written(1) + '{"round"')
    assert rounds_of(reader.read()) == [1] and len(parsed) == 1
    file.write_text(written(1) + '{"round": 2}\n')
    assert rounds_of(reader.read()) == [1, 2] and len(parsed) == 2
    assert reader.damaged is None


def test_a_file_that_was_cut_or_written_again_is_read_from_the_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(written(1, 2, 3))
    reader = LineReader(file)
    reader.read()
    file.write_text(written(1))
    assert rounds_of(reader.read()) == [1]
    file.write_text(written(1, 2, 3, 4, extra="longer than before"))
    found = reader.read()
    assert rounds_of(found) == [1, 2, 3, 4] and {line["extra"] for line in found} == {"longer than before"}
    file.unlink()
    assert reader.read() == []


@pytest.mark.parametrize("bad", ["{", "[]", '{"round": 7}', "\xff"])
def test_nothing_after_a_damaged_line_is_read(tmp_path: Path, bad: str) -> None:
    (tmp_path / "file").write_bytes((written(1) + bad + "\n" + written(2)).encode("latin-1"))
    reader = LineReader(tmp_path / "file")
    assert rounds_of(reader.read()) == [1] and reader.damaged == 2
    assert rounds_of(read_lines(tmp_path / "file")) == [1]


def test_progress_of_many_runs_parses_each_line_once(tmp_path: Path, parsed: list[str]) -> None:
    run = written_run(tmp_path / "run", clients=2, classes=2, rounds=4)
    cell = Cell("", "isfl", 0, tiny_config(training={"rounds": 4}), run)
    parsed.clear()
    assert cell.complete and rounds_of(cell.lines) == [1, 2, 3, 4]
    assert len(parsed) == 4


def test_the_live_page_parses_only_new_rounds(tmp_path: Path, parsed: list[str]) -> None:
    run = written_run(tmp_path / "run", clients=2, classes=2, rounds=4)
    kept = {name: (run / name).read_text().splitlines(keepends=True) for name in layout.GROWING}
    for name, all_lines in kept.items():
        (run / name).write_text("".join(all_lines[:3]))
    viewer = Viewer([run], clock=lambda: 0.0)
    assert len(parsed) == 2 * 3
    for name, all_lines in kept.items():
        (run / name).write_text("".join(all_lines))
    viewer.refresh()
    assert [line["round"] for line in viewer.runs[0].lines] == [1, 2, 3, 4] and len(parsed) == 2 * 4
