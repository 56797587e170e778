"""Data sets as people give them, from Python or from a function, as a source.

| given | meaning |
|---|---|
| four arrays, or a dictionary of them | train inputs, train labels, test inputs, test labels |
| `(train, test)`, or a dictionary with these keys | two data sets |
| the same, with a list or dictionary of data sets as `train` | one data set per client |

A dictionary may have the key `classes`, names of the classes; labels may then be these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import torch

from isfl.data import collect
from isfl.data.collect import PADDING, Collector, Inputs, padded
from isfl.data.own import NAMES
from isfl.data.parts import SampleSet, array_of, sample_set
from isfl.data.sources.base import Source, assembled, source_from
from isfl.errors import UserError

KEYS = ("train", "test", "classes")


def source_of(given: Any, where: str) -> Source:
    """Return what a user gave as a source; `where` is what errors call it."""
    classes: tuple[str, ...] | None = None
    if isinstance(given, Mapping):
        classes = _class_names(given.get("classes"), where)
        if "train" in given or "test" in given:
            given = _train_and_test(given, where)
    if isinstance(given, tuple) and len(given) == 2:
        train, test = given
        if isinstance(train, list) or _is_plain_mapping(train):
            return natural_source(_clients(train, where), [sample_set(test, f"{where}: test")], classes, where)
        return pooled_source(sample_set(train, f"{where}: train"), sample_set(test, f"{where}: test"), classes, where)
    return _of_four_arrays(given, classes, where)


def _of_four_arrays(given: Any, classes: tuple[str, ...] | None, where: str) -> Source:
    values: list[Any] = [None]
    if isinstance(given, Mapping):
        values = [next((given[name] for name in names if name in given), None) for names in NAMES]
    elif isinstance(given, tuple | list) and len(given) == 4:
        values = list(given)
    if any(value is None for value in values):
        raise UserError(
            f"{where}: found {type(given).__name__}; give train inputs, train labels, test inputs and test labels as "
            "four arrays or a dictionary of them, or two data sets (train, test)"
        )
    train_inputs, train_labels, test_inputs, test_labels = (array_of(value, where) for value in values)
    if _fits(train_inputs) and _fits(test_inputs):
        arrays = {
            "train_images": train_inputs,
            "train_labels": label_numbers(train_labels, classes, f"{where}: train label"),
            "test_images": test_inputs,
            "test_labels": label_numbers(test_labels, classes, f"{where}: test label"),
        }
        return source_from(arrays, classes, where)
    train, test = (train_inputs, train_labels), (test_inputs, test_labels)
    return pooled_source(sample_set(train, f"{where}: train"), sample_set(test, f"{where}: test"), classes, where)


def _fits(inputs: np.ndarray | list[np.ndarray]) -> TypeGuard[np.ndarray]:
    """Whether the inputs can be used as they are: of one length, and not too large for memory."""
    return isinstance(inputs, np.ndarray) and inputs.nbytes <= collect.IN_MEMORY


def pooled_source(train: SampleSet, test: SampleSet, classes: tuple[str, ...] | None, where: str) -> Source:
    """Return a source whose training data is still to be split."""
    return _joined([train], [test], classes, where)


def natural_source(
    clients: Mapping[str, SampleSet], test: Sequence[SampleSet], classes: tuple[str, ...] | None, where: str
) -> Source:
    """Return a source whose clients have their data already."""
    if not clients:
        raise UserError(f"{where}: train has no clients; give one data set per client")
    return _joined(list(clients.values()), test, classes, where, tuple(clients))


def _joined(
    train: Sequence[SampleSet],
    test: Sequence[SampleSet],
    classes: tuple[str, ...] | None,
    where: str,
    names: tuple[str, ...] = (),
) -> Source:
    classes = classes or next((part.classes for part in (*train, *test) if part.classes), None)
    labels, collectors = {}, {}
    inputs: dict[str, Inputs] = {}
    for part, sets in (("train", train), ("test", test)):
        with Collector(sum(map(len, sets))) as collector:
            labels[part] = np.concatenate([_read(one, collector, classes) for one in sets])
            inputs[part], collectors[part] = collector.finish(), collector
    _pad(inputs, collectors, where)
    bounds = np.cumsum([0, *map(len, train)]) if names else None
    return assembled(inputs, labels, classes, where, bounds, names)


def _read(samples: SampleSet, collector: Collector, classes: tuple[str, ...] | None) -> np.ndarray:
    """Put the inputs of a set into the collector and return its labels."""
    labels, first = [], 0
    for inputs, values in samples.chunks():
        collector.add(inputs, samples.where, first)
        labels.append(label_numbers(values, classes, f"{samples.where}: label", first))
        first += len(values)
    return np.concatenate(labels)


def _pad(inputs: dict[str, Inputs], collectors: Mapping[str, Collector], where: str) -> None:
    """Bring the token sequences of all parts to the length of the longest."""
    lengths = set[int]().union(*(collector.lengths for collector in collectors.values()))
    if len(lengths) < 2:
        return
    if any(collector.has_padding_token for collector in collectors.values()):
        raise UserError(
            f"{where}: sequences of {min(lengths)} to {max(lengths)} tokens are filled up with token {PADDING}, which "
            "they use themselves; number tokens from 1, or pad the sequences yourself"
        )
    for part, tokens in inputs.items():
        if not isinstance(tokens, torch.Tensor):
            raise UserError(f"{where}: {part} is too large to pad sequences; pad them to one length yourself")
        inputs[part] = torch.from_numpy(padded(tokens.numpy(), max(lengths)))


def label_numbers(
    values: Sequence[Any] | np.ndarray, classes: tuple[str, ...] | None, where: str, first: int = 0
) -> np.ndarray:
    """Return labels as whole numbers; names of classes become their positions in `classes`."""
    try:
        labels = np.asarray([np.asarray(value) for value in values] if isinstance(values, list) else values)
    except Exception:  # values of different shapes
        raise UserError(f"{where}s must be one whole number or name per sample") from None
    if labels.dtype.kind not in "UO" or labels.ndim != 1:
        return labels
    if classes is None:
        raise UserError(
            f"{where} {first} is {str(labels[0])!r}; give whole numbers from 0, or the names of all classes in order "
            '({"train": ..., "test": ..., "classes": [...]})'
        )
    positions = {name: position for position, name in enumerate(classes)}
    for number, label in enumerate(labels, first):
        if str(label) not in positions:
            raise UserError(f"{where} {number} is {str(label)!r}, not one of the classes {', '.join(classes)}")
    return np.array([positions[str(label)] for label in labels])


def _train_and_test(given: Mapping[str, Any], where: str) -> tuple[Any, Any]:
    unknown = [key for key in given if key not in KEYS] if type(given) is dict else []
    if unknown or "train" not in given or "test" not in given:
        raise UserError(f"{where}: has the keys {', '.join(map(str, given))}; it should have train and test")
    return given["train"], given["test"]


def _class_names(given: Any, where: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence) or len(set(map(str, given))) != len(given):
        raise UserError(f"{where}: classes must be a list of different names, found {given!r}")
    return tuple(map(str, given))


def _clients(given: Any, where: str) -> dict[str, SampleSet]:
    """Return the clients' sets by name; clients of a list are numbered."""
    named = given.items() if isinstance(given, Mapping) else enumerate(given)
    return {str(name): sample_set(part, f"{where}: client {str(name)!r}") for name, part in named}


def _is_plain_mapping(given: Any) -> bool:
    return isinstance(given, Mapping) and not hasattr(given, "column_names")
