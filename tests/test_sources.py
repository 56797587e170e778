"""Readers of every other format: valid files are read, damaged files are refused by name."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isfl.data import DataSettings, load
from isfl.errors import UserError
from isfl.models import ModelSettings, build_model

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("own_cache")


def test_fashion_mnist_from_its_official_files(tmp_path: Path) -> None:
    for key, name in (("train", "train"), ("test", "t10k")):
        for what, values in (("images-idx3", RNG.integers(0, 256, (12, 28, 28))), ("labels-idx1", np.arange(12) % 10)):
            array = values.astype(np.uint8)
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            raw = header + array.tobytes()
            file = tmp_path / f"{name}-{what}-ubyte"
            if key == "train":
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(raw))
            else:
                file.write_bytes(raw)
    source = load(DataSettings(name="fashion-mnist", path=str(tmp_path)))
    assert source.train.inputs.shape == (12, 1, 28, 28) and source.test.labels[:3].tolist() == [0, 1, 2]
    packed = tmp_path / "train-images-idx3-ubyte.gz"
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UserError, match="damaged or not an IDX file"):
        load(DataSettings(name="fashion-mnist", path=str(tmp_path)))
    packed.unlink()
    with pytest.raises(UserError, match="lacks train-images-idx3-ubyte"):
        load(DataSettings(name="fashion-mnist", path=str(tmp_path)))


def test_digits_are_real_and_balanced_for_testing() -> None:
    source = load(DataSettings(name="digits"))
    assert len(source.train) + len(source.test) == 1797
    assert source.test.class_counts.tolist() == [50] * 10 and source.train.inputs.shape[1:] == (1, 8, 8)
    assert source.train.stored().max() == 255


def test_own_arrays_in_an_npz_file(tmp_path: Path) -> None:
    good = {
        "x_train": np.zeros((6, 8, 8, 3), np.uint8),
        "y_train": np.arange(6) % 3,
        "x_test": np.zeros((3, 8, 8, 3), np.uint8),
    }
    good["y_test"] = np.arange(3)
    np.savez(tmp_path / "a.npz", **good)  # type: ignore[arg-type]
    source = load(DataSettings(name="npz", path=str(tmp_path / "a.npz")))
    assert source.train.inputs.shape == (6, 3, 8, 8) and source.train.num_classes == 3
    for change, message in (
        ({"y_test": np.array([0, 1, 3])}, "test label 2 is 3; labels must lie in 0 .. 2"),
        ({"y_train": np.arange(5)}, "6 train inputs but 5 train labels"),
        ({"y_train": np.arange(6) / 2}, "vector of whole numbers"),
        ({"x_test": np.zeros((3, 9, 8, 3), np.uint8)}, "they must agree"),
        ({"x_train": np.full((6, 4), np.nan)}, "not all finite"),
        ({"x_train": np.full((6, 4), 1e300)}, "not all finite"),
        ({"y_train": np.array([0, 1, 2, 0, 1, 10**12])}, "more classes than samples"),
        ({"y_train": np.zeros(6, int)}, "at least two are needed"),
    ):
        np.savez(tmp_path / "b.npz", **{**good, **change})  # type: ignore[arg-type]
        with pytest.raises(UserError, match=message):
            load(DataSettings(name="npz", path=str(tmp_path / "b.npz")))
    np.savez(tmp_path / "c.npz", x_train=np.zeros((6, 8)))
    with pytest.raises(UserError, match="has no array 'train_labels'"):
        load(DataSettings(name="npz", path=str(tmp_path / "c.npz")))
    (tmp_path / "d.npz").write_bytes(b"nothing")
    for path, message in (
        (str(tmp_path / "d.npz"), "not an npz file"),
        ("nowhere.npz", "no such file"),
        (None, "needs data.path"),
    ):
        with pytest.raises(UserError, match=message):
            load(DataSettings(name="npz", path=path))


def pictures(directory: Path, sizes: dict[str, tuple[int, int]]) -> None:
    for name, size in sizes.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (1, 2, 3)).save(file)


def test_own_pictures_in_class_folders(tmp_path: Path) -> None:
    pictures(
        tmp_path, {f"{part}/{c}/{i}.png": (8, 6) for part in ("train", "test") for c in ("cat", "dog") for i in (1, 2)}
    )
    (tmp_path / "train/cat/notes.txt").write_text("not a picture")
    source = load(DataSettings(name="folders", path=str(tmp_path)))
    assert source.class_names == ("cat", "dog") and source.train.inputs.shape == (4, 3, 6, 8)
    assert source.train.labels.tolist() == [0, 0, 1, 1]
    pictures(tmp_path, {"test/dog/3.png": (9, 9)})
    with pytest.raises(UserError, match=r"3\.png: has shape \(9, 9, 3\) where"):
        load(DataSettings(name="folders", path=str(tmp_path)))
    (tmp_path / "test/dog/3.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(UserError, match=r"3\.png: damaged or not a picture"):
        load(DataSettings(name="folders", path=str(tmp_path)))
    Image.fromarray(np.zeros((6, 8), np.uint16)).save(tmp_path / "test/dog/3.png")
    with pytest.raises(UserError, match="more than 8 bits per pixel"):
        load(DataSettings(name="folders", path=str(tmp_path)))
    (tmp_path / "test/dog/3.png").unlink()
    pictures(tmp_path, {"test/fish/1.png": (8, 6)})
    with pytest.raises(UserError, match="fish: a class that the training data does not have"):
        load(DataSettings(name="folders", path=str(tmp_path)))
    with pytest.raises(UserError, match="needs the directories train and test"):
        load(DataSettings(name="folders", path=str(tmp_path / "train")))


OWN = """
import numpy as np, torch
def good(): return np.zeros((4, 5)), np.array([0, 1, 0, 1]), np.zeros((2, 5)), np.array([0, 1])
def raises(): raise RuntimeError("the disk is on fire")
def nothing(): return None
def three(): return 1, 2, 3
def ragged(): return [[1.5], [1.5, 2]], [0, 1], [[1.5]], [0]
def leaves(): raise SystemExit(0)
class Net(torch.nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.layer = torch.nn.Linear(shape[0], classes)
    def forward(self, x): return self.layer(x)
def no_net(shape, classes): return "a net"
def wrong_net(shape, classes): return torch.nn.Linear(shape[0], classes + 1)
"""


def test_own_functions_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_things.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    source = load(DataSettings(name="own_things:good"))
    assert source.train.inputs.dtype == torch.float32 and source.train.num_classes == 2
    for name, message in (
        ("own_things:raises", "it raised RuntimeError: the disk is on fire"),
        ("own_things:nothing", "found NoneType; give train inputs, train labels"),
        ("own_things:three", "found tuple; give train inputs, train labels"),
        ("own_things:ragged", r"train: sample 1 has shape \(2,\) where sample 0 has \(1,\)"),
        ("own_things:leaves", "it raised SystemExit"),
        ("own_things:absent", "has no 'absent'"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
    ):
        with pytest.raises(UserError, match=message):
            load(DataSettings(name=name))
    assert isinstance(build_model(ModelSettings(name="own_things:Net"), (5,), 2, 0), torch.nn.Module)
    with pytest.raises(UserError, match="it returned a str"):
        build_model(ModelSettings(name="own_things:no_net"), (5,), 2, 0)
    config = (
        "[data]\nname = 'own_things:good'\npublic = 1\n[split]\nkind = 'iid'\nclients = 1\nsamples_per_client = 2\n"
    )
    (tmp_path / "c.toml").write_text(config + "[model]\nname = 'own_things:wrong_net'\n")
    done = subprocess.run(
        [sys.executable, "-m", "isfl.cli", "run", "c.toml"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "returns (2, 3) for 2 samples and 2 classes" in done.stderr
