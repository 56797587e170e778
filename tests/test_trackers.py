"""Trackers receive every round, and their failures do not affect the run."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from isfl.errors import UserError
from isfl.experiment.run import resume, run
from isfl.problem.config import Config
from isfl.trackers import thread, tracking
from isfl.trackers.content import client_rows, scalars
from isfl.trackers.tracking import Tracking, tracked
from tests.commands import isfl
from tests.tracked import config_of, ignore, lose_the_last_round, metrics

EXAMPLES = Path(__file__).parent.parent / "examples"
TOML = """
[data]
public = 30
[split]
kind = "iid"
clients = 2
samples_per_client = 30
[model]
name = "mlp"
width = 0.25
[training]
rounds = 3
local_epochs = 1
batch_size = 32
"""


@pytest.fixture
def config() -> Config:
    return config_of()


def accumulated(path: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path / "tensorboard"))
    events.Reload()
    return events


class Notes:
    """Records its calls, and can run other code at one of them."""

    def __init__(self, **instead: Any) -> None:
        self.told: list[Any] = []
        self.instead = instead

    def begin(self, config: Mapping[str, Any], directory: Path) -> None:
        self.note("begin", (config["training"]["rounds"], directory))

    def on_round(self, line: Mapping[str, Any]) -> None:
        self.note(f"round {line['round']}", line)

    def end(self) -> None:
        self.note("end", "end")

    def note(self, moment: str, content: Any) -> None:
        if moment in self.instead:
            self.instead[moment]()
        self.told.append(content)


def tracking_with(monkeypatch: pytest.MonkeyPatch, **named: Notes) -> Tracking:
    monkeypatch.setattr(tracking, "factory_named", lambda name: lambda: named[name])
    return Tracking(list(named))


def fail() -> None:
    raise RuntimeError("no room\nand more")


def test_a_tracker_receives_the_start_every_line_and_the_end(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes()
    seen: list[dict[str, Any]] = []
    with tracked(tracking_with(monkeypatch, notes=notes), config, tmp_path / "run", seen.append) as on_round:
        run(config, tmp_path / "run", on_round)
    lines = metrics(tmp_path / "run")
    assert notes.told == [(3, tmp_path / "run"), *lines, "end"] and seen == lines


def test_a_stopped_run_ends_its_trackers(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        tracked(tracking_with(monkeypatch, notes=notes), config, tmp_path / "run", stop) as on_round,
    ):
        run(config, tmp_path / "run", on_round)
    assert notes.told == [(3, tmp_path / "run"), metrics(tmp_path / "run")[0], "end"]


@pytest.mark.parametrize("moment", ["begin", "round 1", "round 2", "end"])
def test_a_tracker_that_fails_gives_one_warning_and_the_others_continue(
    moment: str, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = Notes(**{moment: fail}), Notes()
    with (
        pytest.warns(UserWarning, match=r"tracker bad failed and is dropped \(RuntimeError: no room\)") as warned,
        tracked(tracking_with(monkeypatch, bad=bad, good=good), config, tmp_path / "run", ignore) as on_round,
    ):
        run(config, tmp_path / "run", on_round)
    assert len(warned) == 1
    assert len(good.told) == 5 and good.told[-1] == "end"
    assert (tmp_path / "run/model.safetensors").exists()
    assert "end" not in bad.told


def test_the_run_never_waits_for_a_tracker(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker that hangs is abandoned after one time limit for all trackers."""
    monkeypatch.setattr(thread, "PATIENCE", 0.2)
    hold = threading.Event()
    stuck = Notes(**{"round 1": hold.wait})
    with (
        pytest.warns(UserWarning, match="still busy"),
        tracked(tracking_with(monkeypatch, stuck=stuck), config, tmp_path / "run", ignore) as on_round,
    ):
        run(config, tmp_path / "run", on_round)
    assert len(stuck.told) == 1  # it hangs in the first round to this moment, and all rounds are there
    assert len(metrics(tmp_path / "run")) == 3
    hold.set()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorbord", "--track tensorbord: choose tensorboard, wandb, mlflow, or give module:function"),
        ("nowhere_at_all:Tracker", "cannot import 'nowhere_at_all'"),
        ("json:Tracker", "module 'json' has no 'Tracker'"),
        ("builtins:list", "it returned a list without begin, on_round and end"),
        ("json:loads", "it raised TypeError"),
    ],
)
def test_a_wrong_name_is_refused_before_anything_runs(name: str, message: str) -> None:
    with pytest.raises(UserError, match="--track") as told:
        Tracking([name])
    assert message in str(told.value)


def test_tensorboard_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install 'isfl\[tensorboard\]'"):
        Tracking(["tensorboard"])


def test_tensorboard_has_every_number_of_every_round(config: Config, tmp_path: Path) -> None:
    with tracked(Tracking(["tensorboard"]), config, tmp_path / "run", ignore) as on_round:
        run(config, tmp_path / "run", on_round)
    events, lines = accumulated(tmp_path / "run"), metrics(tmp_path / "run")
    expected = {
        "accuracy_standard": [line["accuracy_standard"] for line in lines],
        "gradient_evaluations/training": [line["gradient_evaluations"]["training"] for line in lines],
        "recall/3": [line["recall"][3] for line in lines],
        "clients/participants": [2, 2, 2],
        "clients/refused": [0, 0, 0],
    }
    for tag, values in expected.items():
        found = events.Scalars(tag)
        assert [event.step for event in found] == [1, 2, 3]
        assert [event.value for event in found] == pytest.approx(values)
    assert set(events.Tags()["scalars"]) == {tag for line in lines for tag, _ in scalars(line)}
    assert "worst_client" not in events.Tags()["scalars"] and "worst_client_accuracy" in events.Tags()["scalars"]


def test_a_long_table_of_clients_leaves_out_rounds_evenly(tmp_path: Path) -> None:
    lines = [{"round": n, "client_accuracy": [0.1 * n, None], "client_drift": [1.0, 2.0]} for n in range(1, 6)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [row[:2] for row in client_rows(tmp_path)] == [(n, k) for n in range(1, 6) for k in (0, 1)]
    assert client_rows(tmp_path)[1] == (1, 1, None, None, 2.0)
    assert [row[:2] for row in client_rows(tmp_path, most=6)] == [(n, k) for n in (1, 3, 5) for k in (0, 1)]


def test_missing_measurements_are_not_scalars() -> None:
    line = {
        "round": 3,
        "accuracy_standard": None,
        "recall": [0.5, None],
        "confusion": [[3, 1], [0, 4]],
        "bound": {"total": 2.0, "phi": [1.0]},
    }
    assert dict(scalars(line)) == {"recall/0": 0.5, "bound/total": 2.0, "bound/phi/0": 1.0}


def test_a_resumed_run_replaces_the_rounds_that_run_again(config: Config, tmp_path: Path) -> None:
    """The last checkpoint is lost after its round was tracked: the round runs and is tracked again."""
    out = tmp_path / "run"
    with tracked(Tracking(["tensorboard"]), config, out, ignore) as on_round:
        run(config, out, on_round)
    lose_the_last_round(out)
    with tracked(Tracking(["tensorboard"]), config, out, ignore) as on_round:
        resume(out, on_round)
    assert len(list((out / "tensorboard").iterdir())) == 2
    found = accumulated(out).Scalars("train_loss")
    assert [event.step for event in found] == [1, 2, 3]
    assert [event.value for event in found] == pytest.approx([line["train_loss"] for line in metrics(out)])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(TOML)
    shutil.copy(EXAMPLES / "own_tracker.py", tmp_path)
    return tmp_path


def test_the_example_on_the_command_line(place: Path) -> None:
    result = isfl("run", "tiny.toml", "--out", "out", "--track", "own_tracker:Csv", "--track", "tensorboard", cwd=place)
    assert result.returncode == 0 and not result.stderr, result.stderr
    expected = [f"{line['round']},{line['accuracy_standard']}" for line in metrics(place / "out")]
    assert (place / "out/accuracy.csv").read_text().splitlines() == expected
    assert len(accumulated(place / "out").Scalars("train_loss")) == 3


def test_each_run_of_a_comparison_is_tracked(place: Path) -> None:
    schemes = ("--schemes", "fedavg,uniform-is", "--seeds", "0,1", "--out", "c", "--jobs", "2")
    result = isfl("compare", "tiny.toml", *schemes, "--track", "own_tracker:Csv", cwd=place)
    assert result.returncode == 0 and not result.stderr, result.stderr
    for path in (place / f"c/{scheme}/seed-{seed}" for scheme in ("fedavg", "uniform-is") for seed in (0, 1)):
        rounds = [line.partition(",")[0] for line in (path / "accuracy.csv").read_text().splitlines()]
        assert rounds == ["1", "2", "3"], path


@pytest.mark.parametrize("command", [("run", "tiny.toml"), ("compare", "tiny.toml"), ("resume", "out")])
def test_a_wrong_tracker_is_one_line_and_nothing_is_written(place: Path, command: tuple[str, ...]) -> None:
    before = sorted(place.iterdir())
    result = isfl(*command, "--track", "comet", cwd=place)
    assert result.returncode == 2 and result.stderr.startswith("error: --track comet: ")
    assert result.stderr.count("\n") == 1 and sorted(place.iterdir()) == before
