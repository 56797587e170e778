"""What a data set by name offers: a name, a function that loads it, and a training pool and test set as the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from isfl.data.checks import checked_inputs, checked_labels
from isfl.data.collect import Inputs
from isfl.data.dataset import Dataset
from isfl.data.normalize import Normalize
from isfl.data.public_set import Origin
from isfl.errors import UserError
from isfl.schema import Part

PARTS = ("train", "test")
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


class DataSettings(Part):
    """Where the training pool and the test set come from."""

    name: str = Field(
        "fashion-mnist-mini",
        description="a data set by name (`isfl data list`), or `module:function` that returns train inputs, train "
        "labels, test inputs and test labels, or two data sets, or one per client and a test set",
    )
    path: str | None = Field(None, description="file or directory the data is read from, where the name needs one")
    shape: list[int] | None = Field(
        None, min_length=1, description="shape of an input, for data with flat rows, such as `[1, 28, 28]` for images"
    )
    hub: bool = Field(False, description="allow a download from the Hugging Face hub (needs the library `datasets`)")
    public: int = Field(500, ge=1, description="|D_L|: public samples on which Lipschitz values are estimated")
    public_from: Origin = Field(
        "unused",
        description="which samples are public: of those no client owns, equally many per class or at random (the "
        "paper's text); or at random from all training data, so that clients may own them too (the authors' code)",
    )
    normalize: Normalize | None = Field(None, description="without this table images are scaled to [-1, 1]")


@dataclass(frozen=True)
class Source:
    """A training pool that clients share, and the balanced standard test set D_S."""

    train: Dataset
    test: Dataset
    class_names: tuple[str, ...]
    bounds: np.ndarray | None = None
    """If the data comes with clients: client `k` has the rows `bounds[k] .. bounds[k + 1]` of `train`."""
    client_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class NamedSource:
    """A data set that `data.name` can name."""

    name: str
    load: Callable[[DataSettings], Source]
    """Its docstring is what `isfl data list` prints."""
    cached: bool = False
    """Whether it is read from the cache when there is no `data.path`."""


def source_from(arrays: Mapping[str, np.ndarray], class_names: tuple[str, ...] | None, where: str) -> Source:
    """Check the four `ARRAYS` and return them as a source.

    Without `class_names`, the labels decide the number of classes. `where` is what errors call the arrays.
    """
    inputs: dict[str, Inputs] = {}
    for part in PARTS:
        inputs[part] = torch.from_numpy(checked_inputs(arrays[f"{part}_images"], f"{where}: {part} inputs"))
    return assembled(inputs, {part: arrays[f"{part}_labels"] for part in PARTS}, class_names, where)


def assembled(
    inputs: Mapping[str, Inputs],
    given_labels: Mapping[str, np.ndarray],
    class_names: tuple[str, ...] | None,
    where: str,
    bounds: np.ndarray | None = None,
    client_names: tuple[str, ...] = (),
) -> Source:
    """Return a source of checked inputs; check labels, classes and shapes.

    The mappings have the keys `train` and `test`; the other arguments are those of `source_from` and `Source`.
    """
    labels = {part: checked_labels(given_labels[part], f"{where}: {part} labels") for part in PARTS}
    classes = len(class_names) if class_names else int(labels["train"].max(initial=0)) + 1
    if class_names is None and classes > len(labels["train"]):
        raise UserError(f"{where}: train labels go up to {classes - 1}, more classes than samples; number them from 0")
    if classes < 2:
        raise UserError(f"{where}: train labels know only {classes} class; at least two are needed")
    parts = {part: _dataset(inputs[part], values, classes, part, where) for part, values in labels.items()}
    if parts["train"].inputs.shape[1:] != parts["test"].inputs.shape[1:]:
        shapes = [tuple(parts[p].inputs.shape[1:]) for p in PARTS]
        raise UserError(f"{where}: train inputs have shape {shapes[0]} and test inputs {shapes[1]}; they must agree")
    if parts["train"].inputs.dtype != parts["test"].inputs.dtype:
        types = [str(parts[p].inputs.dtype).removeprefix("torch.") for p in PARTS]
        raise UserError(f"{where}: train inputs are {types[0]} and test inputs {types[1]}; they must agree")
    return Source(parts["train"], parts["test"], class_names or numbered(classes), bounds, client_names)


def _dataset(inputs: Inputs, labels: np.ndarray, classes: int, part: str, where: str) -> Dataset:
    if len(inputs) != len(labels):
        raise UserError(f"{where}: {len(inputs)} {part} inputs but {len(labels)} {part} labels")
    if labels.max(initial=0) >= classes or labels.min(initial=0) < 0:
        bad = int(np.argmax((labels >= classes) | (labels < 0)))
        raise UserError(f"{where}: {part} label {bad} is {labels[bad]}; labels must lie in 0 .. {classes - 1}")
    return Dataset(inputs, torch.from_numpy(labels), classes)


def required_path(settings: DataSettings) -> Path:
    if settings.path is None:
        raise UserError(f"data.name = {settings.name!r} needs data.path, the place of your data")
    return Path(settings.path)


def numbered(classes: int) -> tuple[str, ...]:
    """Return class names `0`, `1`, ... for classes without better ones."""
    return tuple(map(str, range(classes)))
