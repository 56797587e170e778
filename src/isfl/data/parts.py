"""One set of labelled samples as people have it: arrays, a map-style data set of torch, or one of Hugging Face.

Each sample is read once, in order, with the global generators of torch, numpy and Python seeded: a data set that
transforms at random gives the same samples every time. (`training.augment` is for changes from epoch to epoch.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from isfl.data.dataset import Dataset
from isfl.data.own import call
from isfl.data.pictures import CHUNK, pixels_of
from isfl.errors import UserError, summary
from isfl.randomness import global_randomness

INPUT_NAMES = ("image", "img", "images", "pixel_values", "input_ids", "tokens", "inputs", "features", "x")
LABEL_NAMES = ("label", "labels", "fine_label", "target", "y")

Chunk = tuple[np.ndarray | list[np.ndarray], list[Any]]
"""Inputs and labels of some samples."""


class SampleSet(Protocol):
    """Samples that can be read once."""

    @property
    def where(self) -> str:
        """What errors call the set."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, if the set knows them."""

    def __len__(self) -> int: ...
    def chunks(self) -> Iterator[Chunk]: ...


def sample_set(given: Any, where: str) -> SampleSet:
    """Return the samples that a user gave; raise `UserError` if it is nothing that holds samples."""
    if isinstance(given, Dataset):
        given = (given.stored(), given.labels)
    if isinstance(given, tuple):
        if len(given) != 2:
            raise UserError(f"{where}: a tuple of {len(given)}; give inputs and labels, or a data set")
        return Arrays(array_of(given[0], where), array_of(given[1], where), where)
    if hasattr(given, "column_names") and hasattr(given, "features"):
        return _of_hugging_face(given, where)
    if isinstance(given, str | Mapping) or not hasattr(given, "__getitem__"):
        raise UserError(
            f"{where}: a {type(given).__name__} holds no samples; give a data set with __len__ and __getitem__, or "
            "(inputs, labels)"
        )
    classes = getattr(given, "classes", None)
    return MapStyle(given, _length(given, where), where, None if classes is None else tuple(map(str, classes)))


@dataclass(frozen=True)
class Arrays:
    """Inputs and labels as two arrays, or sequences of different lengths as a list of arrays."""

    inputs: np.ndarray | list[np.ndarray]
    labels: np.ndarray | list[np.ndarray]
    where: str
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise UserError(f"{self.where}: {len(self.inputs)} inputs but {len(self.labels)} labels")
        _check_not_empty(len(self), self.where)

    def __len__(self) -> int:
        return len(self.inputs)

    def chunks(self) -> Iterator[Chunk]:
        for start in range(0, len(self), CHUNK):
            rows = slice(start, start + CHUNK)
            yield self.inputs[rows], list(self.labels[rows])


@dataclass(frozen=True)
class MapStyle:
    """A data set with `__len__` and `__getitem__` that returns (input, label), or a dictionary with these columns."""

    data: Any
    length: int
    where: str
    classes: tuple[str, ...] | None
    columns: tuple[str, str] | None = None

    def __len__(self) -> int:
        return self.length

    def chunks(self) -> Iterator[Chunk]:
        for start in range(0, self.length, CHUNK):
            numbers = range(start, min(start + CHUNK, self.length))
            with global_randomness(start):
                pairs = [self._sample(number) for number in numbers]
            yield [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if (now := _length(self.data, self.where)) != self.length:
            raise UserError(f"{self.where}: its length was {self.length} and is {now} now; it must not change")

    def _sample(self, number: int) -> tuple[np.ndarray, Any]:
        place = f"{self.where}: sample {number} of {self.length}"
        item = call(self.data.__getitem__, place, number)
        if isinstance(item, Mapping):
            names = self.columns or _columns(list(item), place)
            item = tuple(item[name] for name in names)
        if not isinstance(item, tuple | list) or len(item) != 2:
            found = f"{len(item)} values" if isinstance(item, tuple | list) else type(item).__name__
            raise UserError(f"{place}: is {found}; it should be an input and a label")
        value = array_of(item[0], place)
        if isinstance(value, list):
            raise UserError(f"{place}: its input is a list of sequences of different lengths; give one array")
        return value, item[1]


def _of_hugging_face(given: Any, where: str) -> SampleSet:
    """Columns by their features: labels are a ClassLabel (or have a usual name), inputs are an Image or the rest."""
    features = given.features or {}
    labels = [name for name, feature in features.items() if type(feature).__name__ == "ClassLabel"]
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    columns = _columns(given.column_names, where, images, labels)
    names = getattr(features.get(columns[1]), "names", None)
    return MapStyle(given, _length(given, where), where, None if names is None else tuple(names), columns)


def _columns(
    names: Sequence[str], where: str, images: Sequence[str] = (), labels: Sequence[str] = ()
) -> tuple[str, str]:
    """Return the columns of inputs and labels: the only ones of their kind, or else those with usual names."""
    label = _only(labels) or next((name for name in LABEL_NAMES if name in names), None)
    others = [name for name in names if name != label]
    inputs = _only(images) or next((name for name in INPUT_NAMES if name in others), None) or _only(others)
    if label is None or inputs is None:
        raise UserError(
            f"{where}: has the columns {', '.join(map(str, names))}; name that of the inputs {INPUT_NAMES[0]!r} and "
            f"that of the labels {LABEL_NAMES[0]!r}"
        )
    return inputs, label


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None


def _length(given: Any, where: str) -> int:
    try:
        length = len(given)
    except TypeError:
        raise UserError(
            f"{where}: a {type(given).__name__} has no length; give a map-style data set (__len__ and __getitem__)"
        ) from None
    _check_not_empty(length, where)
    return length


def _check_not_empty(length: int, where: str) -> None:
    if length == 0:
        raise UserError(f"{where}: has no samples; leave it out, or fill it")


def array_of(value: Any, where: str) -> np.ndarray | list[np.ndarray]:
    """Return numbers of any origin as an array; rows of different lengths as a list of arrays."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if hasattr(value, "convert") and hasattr(value, "mode"):  # a picture of Pillow
        return pixels_of(value, where)
    if isinstance(value, list | tuple) and len({np.shape(row) for row in value if not isinstance(row, str)}) > 1:
        return [np.asarray(row) for row in value]
    try:
        return np.asarray(value)
    except Exception as error:  # anything that is no array
        raise UserError(f"{where}: is no array of numbers ({summary(error)})") from None
