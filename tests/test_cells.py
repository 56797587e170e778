"""Many runs over the cores: the last ones are shared, with the same bits; how long the rest will take."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isfl import layout
from isfl.cli import terminal
from isfl.data.sources import SOURCES, DataSettings, Source
from isfl.experiment import cells as module
from isfl.experiment.cells import Cell, begin_cells, run_cells, seconds_left
from isfl.problem.config import config_from
from isfl.problem.given import NOTHING, Given


def planned(out: Path, rounds: Sequence[int], data: str = "fashion-mnist-mini") -> list[Cell]:
    """Runs of different lengths."""
    training = {"local_epochs": 1, "batch_size": 16}
    shared = {
        "data": {"name": data, "public": 40},
        "split": {"clients": 4, "shard_size": 20},
        "model": {"name": "mlp", "width": 0.25},
    }
    configs = [
        config_from({**shared, "seed": seed, "training": {**training, "rounds": count}}, "x")
        for seed, count in enumerate(rounds)
    ]
    return [Cell("", "isfl", config.seed, config, out / f"{config.seed}") for config in configs]


def test_a_long_last_run_is_stopped_and_resumed_with_all_processes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = []
    original = module.run_or_resume

    def noted(config: str, out: str, on_round: Any, workers: int = 1, given: Given = NOTHING) -> None:
        if multiprocessing.parent_process() is None:
            shared.append((Path(out).name, workers, len(Path(out, layout.METRICS).read_text().splitlines())))
        original(config, out, on_round, workers, given)

    monkeypatch.setattr(module, "run_or_resume", noted)
    lengths = (1, 60)
    run_cells(planned(tmp_path / "two", lengths), 2, lambda cells: None)
    assert [(name, workers) for name, workers, _ in shared] == [("1", 2)]
    assert 0 < shared[0][2] < 60, "it had begun in a worker"
    monkeypatch.setattr(module, "run_or_resume", original)
    run_cells(planned(tmp_path / "one", lengths), 1, lambda cells: None)
    for cell in planned(tmp_path / "two", lengths):
        assert cell.complete and cell.finished
        alone = tmp_path / "one" / cell.out.name
        assert (cell.out / layout.MODEL).read_bytes() == (alone / layout.MODEL).read_bytes()


def test_runs_of_the_same_data_read_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = tmp_path / "reads"
    original = SOURCES["digits"]

    def noted(settings: DataSettings) -> Source:
        with reads.open("a") as file:  # workers are other processes
            file.write(f"{settings.name}\n")
        return original.load(settings)

    monkeypatch.setitem(SOURCES, "digits", replace(original, load=noted))
    cells = planned(tmp_path / "one", (1, 1, 1), "digits")
    begin_cells(cells, tmp_path / "one", {"command": "compare", "title": "x"})
    assert reads.read_text().split() == ["digits"], "to check all"
    run_cells(cells, 2, lambda cells: None)
    assert reads.read_text().split() == ["digits"] * 2, "to run all"


def test_the_time_left_is_that_of_the_rounds_left(tmp_path: Path) -> None:
    begun, waiting = planned(tmp_path, (5, 10))
    assert seconds_left([begun, waiting], 2) is None
    begun.out.mkdir()
    lines = [{"round": i, "seconds": {"wall": wall}} for i, wall in ((1, 2.0), (2, 4.0))]
    (begun.out / layout.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert seconds_left([begun, waiting], 1) == 3 * (3 + 10)
    assert seconds_left([begun, waiting], 2) == 3 * (3 + 10) / 2
    assert seconds_left([begun], 2) == 3 * 3


@pytest.mark.parametrize(
    ("wall", "words"),
    [(1.0, ""), (10.0, "about 1 min left"), (600.0, "about 1 h 00 min left"), (3333.0, "about 5 h 33 min left")],
)
def test_the_time_left_is_shown_in_words(tmp_path: Path, wall: float, words: str) -> None:
    """Six rounds are left, on one core."""
    (begun,) = planned(tmp_path, (7,))
    begun.out.mkdir()
    (begun.out / layout.METRICS).write_text(json.dumps({"round": 1, "seconds": {"wall": wall}}) + "\n")
    assert terminal._left([begun], 1) == words
