"""`isfl init`: the file it writes fits the data and runs; mistakes are one line."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import isfl
from isfl.data import Dataset
from isfl.problem.problem import prepare
from tests.commands import exit_code
from tests.commands import isfl as command

SHORT = ["training.rounds=1", "training.local_epochs=1"]


def pictures(directory: Path, each: dict[str, int], size: tuple[int, int], mode: str = "RGB") -> Path:
    """Write random pictures of each class for training, and two of each for testing."""
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        for name, count in each.items():
            (directory / part / name).mkdir(parents=True)
            for i in range(count if part == "train" else 2):
                pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
                Image.fromarray(pixels).convert(mode).save(directory / part / name / f"{i}.png")
    return directory


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_arguments_it_writes_a_file_for_the_embedded_data_and_the_next_command_runs(here: Path) -> None:
    done = command("init", cwd=here)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.splitlines() == ["written: experiment.toml", "next: isfl run experiment.toml"]
    text = Path("experiment.toml").read_text(encoding="utf-8")
    assert "6,000 training and 2,000 test samples of shape 1 x 28 x 28" in text
    assert '10 classes with 600 training samples each: "T-shirt", "trouser"' in text
    words = shlex.split(done.stdout.splitlines()[1].removeprefix("next: isfl "))
    options = [word for override in SHORT for word in ("--set", override)]
    ran = command(*words, *options, "--out", "out", cwd=here)
    assert ran.returncode == 0, ran.stderr
    assert isfl.Run("out").finished and isfl.Run("out").config.model.name == "small-cnn"


def test_a_directory_is_inspected_and_its_file_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = pictures(here / 'my "photos"', {"cat": 60, "dog": 30, "a#b": 40}, (20, 24))
    assert exit_code("init", directory.name, "-o", "my file.toml") is None
    assert capsys.readouterr().out.splitlines()[1] == "next: isfl run 'my file.toml'"
    text = Path("my file.toml").read_text(encoding="utf-8")
    assert '3 classes with 30 to 60 training samples each: "a#b", "cat", "dog"' in text
    assert "130 training and 6 test samples of shape 3 x 20 x 24" in text
    config = isfl.load_config("my file.toml")
    assert (config.data.name, config.data.path) == ("folders", 'my "photos"')
    assert (config.model.name, config.data.public) == ("resnet8", 13)
    assert [len(client) for client in prepare(config).clients] == [22] * 5
    record = isfl.run("my file.toml", SHORT, out="out", workers=1).records[-1]
    assert 0 <= record["accuracy_standard"] <= 1


@pytest.mark.parametrize(
    ("inputs", "model"),
    [
        (np.zeros((300, 8, 8), np.uint8), "mlp"),
        (np.zeros((300, 5), np.float32), "mlp"),
        (np.zeros((300, 16, 16), np.uint8), "small-cnn"),
        (np.zeros((300, 3, 32, 32), np.uint8), "resnet8"),
        (np.zeros((300, 3, 96, 96), np.uint8), "small-cnn"),
    ],
    ids=lambda value: str(getattr(value, "shape", "")),
)
def test_the_model_takes_the_inputs(here: Path, inputs: np.ndarray, model: str) -> None:
    labels = np.arange(len(inputs)) % 3
    np.savez("own.npz", x_train=inputs, y_train=labels, x_test=inputs[:9], y_test=labels[:9])
    assert exit_code("init", "own.npz") is None
    config = isfl.load_config("experiment.toml")
    assert config.model.name == model
    problem = prepare(config)  # also asks the model for logits
    assert isinstance(problem.clients[0], Dataset) and len(problem.public) == 30


def test_digits_by_name(here: Path) -> None:
    assert exit_code("init", "digits", "--out", "digits.toml") is None
    config = isfl.load_config("digits.toml")
    assert (config.data.name, config.data.path, config.model.name) == ("digits", None, "mlp")
    assert len(prepare(config).clients) == 10


def test_an_existing_file_is_never_overwritten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text("seed = 7\n", encoding="utf-8")
    assert exit_code("init", "-o", "mine.toml") == 2
    assert capsys.readouterr().err == "error: mine.toml: exists; give another file with --out, or remove it\n"
    assert Path("mine.toml").read_text(encoding="utf-8") == "seed = 7\n"


def test_mistakes_are_one_line_and_write_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    pictures(here / "none", {"a": 0, "b": 0}, (8, 8))
    pictures(here / "few", {"a": 2, "b": 1}, (8, 8))
    (here / "text.npz").write_text("no arrays")
    cases = {
        ("init", "fashion"): "fashion: neither a data set (fashion-mnist-mini, ",
        ("init", "empty"): "data.path = empty: needs the directories train and test",
        ("init", "none"): "none/train: holds no picture",
        ("init", "few"): "few: 3 training samples are too few to split",
        ("init", "text.npz"): "text.npz: damaged or not an npz file",
        ("init", "npz"): "data.name = 'npz' needs data.path",
        ("init", "-o", "nowhere/a.toml"): "nowhere/a.toml: cannot be written",
    }
    for arguments, message in cases.items():
        assert exit_code(*arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and message in line
    assert not list(here.glob("*.toml"))
