"""The federated JSON files of LEAF: their users are the clients, and damaged files are refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import isfl
from isfl.data import DataSettings, load
from isfl.data.sources import leaf
from tests.refusals import refusal

CLASSES = 4


def user(number: int, count: int = 12) -> dict[str, Any]:
    """Samples as FEMNIST has them: 784 numbers between 0 and 1 each; the bright row is the class."""
    rng = np.random.default_rng(number)
    labels = (np.arange(count) + number) % CLASSES
    images = rng.random((count, 28, 28)) / 4
    images[np.arange(count), labels] = 1.0
    return {"x": images.reshape(count, -1).round(3).tolist(), "y": labels.tolist()}


def content(users: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "users": list(users),
        "num_samples": [len(data["y"]) for data in users.values()],
        "user_data": users,
        "hierarchies": [],
    }


@pytest.fixture
def femnist(tmp_path: Path) -> Path:
    """Three writers in two files, and two test files."""
    root = tmp_path / "femnist"
    writers = {f"f{k:04d}": user(k, 12 + 4 * k) for k in range(3)}
    for part, groups in (("train", (["f0000", "f0001"], ["f0002"])), ("test", (["f0000"], ["f0002"]))):
        (root / part).mkdir(parents=True)
        for number, names in enumerate(groups):
            file = root / part / f"all_data_{number}.json"
            file.write_text(json.dumps(content({name: writers[name] for name in names})), encoding="utf-8")
    leaf.content_of.cache_clear()
    return root


def test_every_user_is_a_client_and_all_test_users_are_the_test_set(femnist: Path) -> None:
    source = load(DataSettings(name="leaf", path=str(femnist), shape=[1, 28, 28]))
    assert source.client_names == ("f0000", "f0001", "f0002") and source.class_names == ("0", "1", "2", "3")
    assert source.bounds is not None and source.bounds.tolist() == [0, 12, 28, 48]
    assert source.train.inputs.shape == (48, 1, 28, 28) and len(source.test) == 12 + 20
    second = np.array(user(1, 16)["x"], np.float32).reshape(-1, 1, 28, 28)
    assert np.array_equal(source.train.stored()[12:28].numpy(), second)
    assert source.train.labels[12:16].tolist() == [1, 2, 3, 0]


def test_a_run_on_leaf_files_has_their_users(femnist: Path, tmp_path: Path) -> None:
    config = {
        "data": {"name": "leaf", "path": str(femnist), "shape": [1, 28, 28], "public": 8},
        "model": {"width": 0.25},
        "training": {"rounds": 1, "local_epochs": 1},
    }
    run = isfl.run(config, out=tmp_path / "run", workers=1)
    assert run.config.split.kind == "natural"
    described = json.loads((tmp_path / "run/split.json").read_text())
    assert np.sum(described["client_counts"]) == 40 and len(described["client_counts"]) == 3
    assert isinstance(run.model(), torch.nn.Module)


Change = Callable[[dict[str, Any]], Any]
DAMAGE: dict[str, tuple[Change, str]] = {
    "no users": (lambda c: c.pop("users"), "all_data_0.json: has no key 'users'; files of LEAF have users"),
    "no counts": (lambda c: c.pop("num_samples"), "has no key 'num_samples'"),
    "no data": (lambda c: c.pop("user_data"), "has no key 'user_data'"),
    "counts are no list": (lambda c: c.update(num_samples=3), "users and num_samples must be lists"),
    "fewer counts": (lambda c: c["num_samples"].pop(), "has 2 users but 1 values of num_samples"),
    "another count": (
        lambda c: c.update(num_samples=[12, 99]),
        "user 'f0001': num_samples is 99, but there are 16 x and 16 y",
    ),
    "fewer labels": (lambda c: c["user_data"]["f0000"]["y"].pop(), "num_samples is 12, but there are 12 x and 11 y"),
    "a user without data": (lambda c: c["user_data"].pop("f0001"), "user 'f0001': user_data needs an object with"),
    "no x": (lambda c: c["user_data"]["f0001"].pop("x"), "user 'f0001': user_data needs an object with the lists x"),
    "an empty user": (
        lambda c: c.update(num_samples=[0, 16]) or c["user_data"].update(f0000={"x": [], "y": []}),
        "user 'f0000': has no samples; leave the user out",
    ),
    "a user twice": (
        lambda c: c["users"].__setitem__(1, "f0002") or c["user_data"].update(f0002=user(1, 16)),
        "user 'f0002': is in all_data_0.json too; a user belongs to one file",
    ),
    "text": (lambda c: c["user_data"]["f0000"]["x"].__setitem__(0, "To be"), "user 'f0000': x holds strs, not numbers"),
    "another length": (
        lambda c: c["user_data"]["f0001"]["x"][3].pop(),
        "user 'f0001': sample 3 has shape (783,) where",
    ),
    "a user of another length": (
        lambda c: c["user_data"]["f0001"].update(x=[row[:9] for row in c["user_data"]["f0001"]["x"]]),
        "user 'f0001': sample 0 has shape (9,) where",
    ),
    "a word as label": (
        lambda c: c["user_data"]["f0001"]["y"].__setitem__(2, "a"),
        "label 2 is 'a', not one of the classes 0, 1, 2, 3",
    ),
    "a negative label": (
        lambda c: c["user_data"]["f0001"]["y"].__setitem__(2, -1),
        "train label 14 is -1; labels must",
    ),
    "a huge label": (lambda c: c["user_data"]["f0001"]["y"].__setitem__(2, 10**12), "more classes than samples"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_with_one_line(
    damage: str, femnist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = DAMAGE[damage]
    file = femnist / "train/all_data_0.json"
    whole = json.loads(file.read_text())
    change(whole)
    file.write_text(json.dumps(whole))
    assert message in refusal(tmp_path, capsys, "data.name=leaf", f"data.path={femnist}")


def test_folders_without_files_and_files_without_json_are_refused(
    femnist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = "data.shape=[3, 28, 28]"
    line = refusal(tmp_path, capsys, "data.name=leaf", f"data.path={femnist}", shape)
    assert "data.shape = [3, 28, 28]: an input has shape (784,), 784 numbers" in line
    (femnist / "train/all_data_1.json").write_text('{"users": [')
    assert "all_data_1.json: cannot be read as JSON" in refusal(
        tmp_path, capsys, "data.name=leaf", f"data.path={femnist}"
    )
    for file in (femnist / "test").iterdir():
        file.unlink()
    (femnist / "train/all_data_1.json").unlink()
    assert "test: holds no .json file; data.path needs the folders train and test" in refusal(
        tmp_path, capsys, "data.name=leaf", f"data.path={femnist}"
    )
    assert "needs data.path" in refusal(tmp_path, capsys, "data.name=leaf")
