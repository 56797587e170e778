"""Flower commands: impossible requests are refused, and a client's own data is read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from isfl.cli import main
from isfl.data.held import load_held
from isfl.engines.flower import deployment, keys
from isfl.engines.flower.apps import DEFAULTS, OWN, app_files
from isfl.engines.flower.processes import PROCESSES
from isfl.errors import UserError
from isfl.experiment.directory import RunDirectory
from isfl.experiment.flower_app import configuration

ROOT = Path(__file__).parents[1]


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    file = tmp_path / "run.toml"
    file.write_text("[training]\nrounds = 1\n")
    return file


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    said = capsys.readouterr()
    assert ending.value.code == 2, said.out + said.err
    return said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "clouds"], "--engine clouds: choose local or flower"),
        (["--connection", "here"], "--connection is for --engine flower"),
        (["--engine", "flower", "--connection", "nowhere"], "neither a directory that isfl flower up made, nor"),
        (["--set", "flower.own_data=true", "--set", "flower.clients=2"], "run with --engine flower"),
        (["--set", "flower.own_data=true"], "flower.own_data and flower.clients go together"),
        (
            ["--set", "flower.own_data=true", "--set", "flower.clients=2", "--engine", "flower"],
            "nodes with data of their own are a deployment; give --connection",
        ),
        (["--set", "flower.patience=3"], "unknown key"),
    ],
)
def test_an_impossible_request_is_refused_in_one_line(
    arguments: list[str], words: str, toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(["run", str(toml), "--out", str(tmp_path / "out"), *arguments], capsys)
    assert words in said and said.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        ("local", ["--connection", "x"], "is a run of the engine 'local'"),
        ("simulation", ["--connection", "x"], "is a run of the engine 'simulation'"),
        ("deployment", [], "name it with --connection"),
        ("clouds", [], "engine.kind is 'clouds', which isfl does not know"),
    ],
)
def test_a_run_resumes_only_on_the_engine_that_started_it(
    kind: str, arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(OWN)
    RunDirectory.create(tmp_path / "run", config.model_dump(mode="json"), {}, {"kind": kind, "run": "0" * 32})
    assert words in refusal(["resume", str(tmp_path / "run"), *arguments], capsys)


def test_down_only_stops_what_up_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "not a deployment" in refusal(["flower", "down", "--dir", str(tmp_path)], capsys)
    (tmp_path / "mine.txt").write_text("mine")
    assert "is not a deployment; give an empty" in refusal(["flower", "up", "--dir", str(tmp_path)], capsys)
    # The number now belongs to another process: its start time differs.
    other = tmp_path / "other"
    other.mkdir()
    (other / PROCESSES).write_text(json.dumps([{"name": "superlink", "pid": 1, "started": "12345"}]))
    assert deployment.down(other) == []


def test_flower_is_an_extra(toml: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'isfl[flower]'" in refusal(["run", str(toml), "--engine", "flower"], capsys)


def test_keys_are_created_readable_by_their_owner_only(tmp_path: Path) -> None:
    keys.make_certificates(tmp_path, names=["fl.example.org"], addresses=[])
    keys.make_node_key(tmp_path)
    for secret in ("ca.key", "server.key", "key"):
        assert (tmp_path / secret).stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):  # never replaced
        keys.make_node_key(tmp_path)
    assert (tmp_path / "key.pub").read_text().startswith("ecdsa-sha2-nistp384 ")


# ------------------------------------------------------------ the app


def test_the_repository_and_the_package_are_the_same_app() -> None:
    """`flwr run .` in the repository takes the same keys as `isfl run --connection`."""
    here = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    made = tomllib.loads(app_files()["pyproject.toml"])["tool"]["flwr"]["app"]
    for part in ("publisher", "components", "config"):
        assert here[part] == made[part]


def test_run_configurations_become_configurations() -> None:
    told: dict[str, Any] = {**DEFAULTS, "scheme": "moon", "training.rounds": 2, "set": "data.public=30; seed=5"}
    config = configuration(told)
    assert (config.scheme.name, config.training.rounds, config.data.public, config.seed) == ("moon", 2, 30, 5)
    assert configuration({**DEFAULTS, "config": config.model_dump_json()}) == config
    with pytest.raises(UserError, match="cannot be read"):
        configuration({**OWN, "config": "nowhere.toml"})
    with pytest.raises(UserError, match=r"run configuration: training\.rounds"):
        configuration({**OWN, "set": "training.rounds=-1"})


# ------------------------------------------------------------ a client's own data

CLASSES = ("cat", "dog", "owl")


def rows() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((4, 3, 2, 2), dtype=np.uint8), np.array([0, 2, 2, 2])


def test_data_from_a_file_a_folder_and_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = rows()
    np.savez(tmp_path / "mine.npz", images=images, labels=labels)
    for name, count in (("cat", 1), ("owl", 3)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(np.zeros((2, 2, 3), dtype=np.uint8)).save(tmp_path / "pictures" / name / f"{i}.png")
    (tmp_path / "hospital.py").write_text("from tests.test_flower_commands import rows\n")
    monkeypatch.chdir(tmp_path)
    for reference in (str(tmp_path / "mine.npz"), str(tmp_path / "pictures"), "hospital:rows"):
        data = load_held(reference, CLASSES, (3, 2, 2))
        assert data.class_counts.tolist() == [1, 0, 3] and data.num_classes == 3


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (np.zeros((4, 3, 2, 2), dtype=np.uint8), np.array([0, 1, 2, 3]), "labels must lie in 0 .. 2"),
        (np.zeros((4, 3, 9, 9), dtype=np.uint8), np.array([0, 1, 2, 2]), "have shape (3, 9, 9), those of the"),
        (np.zeros((3, 3, 2, 2), dtype=np.uint8), np.array([0, 1, 2, 2]), "3 inputs but 4 labels"),
        (np.zeros((4, 3, 2, 2), dtype=np.uint8), np.array(list("abcd")), "whole numbers"),
    ],
)
def test_data_that_does_not_fit_is_refused(images: np.ndarray, labels: np.ndarray, words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", images=images, labels=labels)
    with pytest.raises(UserError) as error:
        load_held(str(tmp_path / "mine.npz"), CLASSES, (3, 2, 2))
    assert words in str(error.value) and "mine.npz" in str(error.value)


def test_missing_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    np.savez(tmp_path / "other.npz", pictures=np.zeros(3))
    (tmp_path / "folder" / "cow").mkdir(parents=True)
    cases = {
        "missing.npz": "no such file",
        "bad.npz": "damaged or not an npz file",
        "other.npz": "has no array 'images'",
        "nowhere": "no such folder",
        "folder": "not a class of this federation",
    }
    for name, words in cases.items():
        with pytest.raises(UserError, match=words):
            load_held(str(tmp_path / name), CLASSES, (3, 2, 2))
    with pytest.raises(UserError, match="it returned int"):
        load_held("tests.test_flower_commands:len_of_nothing", CLASSES, (3, 2, 2))


def len_of_nothing() -> int:
    return 0
