"""The user's own code that raises shows the user's own traceback, then one line of ours, from any process."""

from __future__ import annotations

from pathlib import Path

import pytest

from isfl.errors import UserError, as_user_error, user_traceback
from isfl.kernels import library
from tests.commands import isfl

CONFIG = """
scheme = "fedavg"
[data]
public = 40
[split]
clients = 3
shard_size = 20
[model]
name = "mlp"
width = 0.25
[training]
rounds = 1
local_epochs = 1
batch_size = 16
"""
MINE = """
import torch
from torch import nn


def data():
    raise RuntimeError("the disk is on fire")  # data


def transform(batch, generator):
    if len(batch) > 2:
        return helper(batch)
    return batch


def helper(batch):
    return batch[:, "red"]  # transform


class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.last = nn.Linear(shape[0] * shape[1] * shape[2], classes)

    def forward(self, x):
        if self.training:
            raise RuntimeError("not in training")  # forward
        return self.last(x.flatten(1))


class Wrong(Net):
    def forward(self, x):
        return self.last(x)  # shapes


def asks_us(batch, generator):
    from isfl.data.transforms import crop

    return crop(batch, "wide", generator)  # ours


class Tracker:
    def begin(self, config, directory):
        raise OSError("no such server")  # tracker

    def on_round(self, line):
        pass

    def end(self):
        pass


def no_tracker():
    return {}["tracker"]  # factory
"""
OURS = str(Path(library.__file__).parent.parent)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "imports.py").write_text("import mine\nimport not_installed  # import\n", encoding="utf-8")
    (tmp_path / "typo.py").write_text("def data(:  # syntax\n", encoding="utf-8")
    return tmp_path / "mine.py"


RAISING = {
    "data": ("data", "--set", "data.name=mine:data"),
    "transform": ("transform", "--set", "training.augment=['mine:transform']", "--jobs", "1"),
    "transform in a worker": ("transform", "--set", "training.augment=['mine:transform']", "--jobs", "2"),
    "model at the start": ("shapes", "--set", "model.name=mine:Wrong"),
    "model in training": ("forward", "--set", "model.name=mine:Net", "--jobs", "1"),
    "model in a worker": ("forward", "--set", "model.name=mine:Net", "--jobs", "2"),
    "our function, called by the user's": ("ours", "--set", "training.augment=['mine:asks_us']"),
    "tracker": ("factory", "--track", "mine:no_tracker"),
}


@pytest.mark.parametrize("case", RAISING)
def test_the_users_frames_are_shown_and_none_of_ours(case: str, mine: Path) -> None:
    mark, *options = RAISING[case]
    done = isfl("run", "tiny.toml", *options, cwd=mine.parent)
    number, line = next((i, text) for i, text in enumerate(MINE.splitlines(), 1) if f"# {mark}" in text)
    assert done.returncode == 2
    assert f'File "{mine}", line {number}' in done.stderr and line.strip() in done.stderr
    assert OURS not in done.stderr and "isfl.cli" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert done.stderr.index(f"# {mark}") < done.stderr.index("error: ")


def test_a_module_that_cannot_be_imported_shows_where(mine: Path) -> None:
    done = isfl("run", "tiny.toml", "--set", "data.name=imports:data", cwd=mine.parent)
    assert done.returncode == 2 and "import not_installed  # import" in done.stderr
    assert "importlib" not in done.stderr and OURS not in done.stderr
    done = isfl("run", "tiny.toml", "--set", "data.name=typo:data", cwd=mine.parent)
    assert done.returncode == 2 and "typo.py" in done.stderr and "def data(:  # syntax" in done.stderr
    assert OURS not in done.stderr


def test_a_missing_module_is_one_line(mine: Path) -> None:
    done = isfl("run", "tiny.toml", "--set", "data.name=nowhere:data", cwd=mine.parent)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "cannot import 'nowhere'" in done.stderr


def test_parallel_runs_show_the_users_frames(mine: Path) -> None:
    done = isfl(
        "compare", "tiny.toml", "--set", "model.name=mine:Net", "--seeds", "0,1", "--jobs", "2", cwd=mine.parent
    )
    assert done.returncode == 2 and f'File "{mine}"' in done.stderr and OURS not in done.stderr
    assert "your code raised RuntimeError: not in training" in done.stderr.splitlines()[-1]


def test_a_tracker_that_fails_shows_where_and_the_run_continues(mine: Path) -> None:
    done = isfl("run", "tiny.toml", "--track", "mine:Tracker", cwd=mine.parent)
    assert done.returncode == 0 and "run directory" in done.stdout
    assert "tracker mine:Tracker failed and is dropped (OSError: no such server)" in done.stderr
    assert 'raise OSError("no such server")  # tracker' in done.stderr and OURS not in done.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_debug_shows_our_frames_too(jobs: str, mine: Path) -> None:
    done = isfl("--debug", "run", "tiny.toml", "--set", "model.name=mine:Net", "--jobs", jobs, cwd=mine.parent)
    assert done.returncode == 2 and "# forward" in done.stderr
    assert str(Path(OURS) / "federation/training.py") in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")


def test_debug_shows_where_a_mistake_of_the_user_was_found(mine: Path) -> None:
    done = isfl("--debug", "run", "nowhere.toml", cwd=mine.parent)
    assert done.returncode == 2 and str(Path(OURS) / "problem/config.py") in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: nowhere.toml")


def test_an_error_in_our_code_or_a_library_is_a_bug_of_ours() -> None:
    def caught(work: str) -> Exception:
        try:
            exec(compile(work, "<made>", "exec"))
        except Exception as error:
            inner = error.__traceback__.tb_next if error.__traceback__ is not None else None
            return error.with_traceback(inner)
        raise AssertionError

    bug = caught("import json; json.loads('{')")
    assert as_user_error(bug) is None and "decoder.py" in user_traceback(bug)
    mistake = caught("from isfl.errors import UserError; raise UserError('seed: is -1')")
    assert isinstance(mistake, UserError) and as_user_error(mistake) is mistake
