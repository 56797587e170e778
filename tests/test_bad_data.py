"""Data sets that cannot be used are refused with one line that says where and what would be right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from isfl.data.given import source_of
from isfl.errors import UserCodeError, UserError
from tests.refusals import refusal

LABELS = np.arange(12) % 3
GOOD = (np.zeros((12, 1, 4, 4), np.float32), LABELS)


class Items(Dataset[Any]):
    """Twelve images; `change` alters a sample."""

    def __init__(self, change: Callable[[int], Any] = lambda number: None) -> None:
        self.change, self.length = change, 12

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> Any:
        changed = self.change(number)
        return (torch.zeros(3, 4, 4), int(LABELS[number])) if changed is None else changed


class Shrinking(Items):
    def __getitem__(self, number: int) -> Any:
        self.length = 11
        return super().__getitem__(number)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([GOOD])


def at(number: int, item: Any) -> Items:
    return Items(lambda n: item if n == number else None)


def failing(number: int) -> Any:
    if number == 7:
        raise RuntimeError("the disk is on fire")
    return None


def failing_data() -> Any:
    return Items(failing), Items()


WORDS = np.array(["cat", "dog", "cat"] * 4)
CASES: dict[str, tuple[Any, str]] = {
    "it changes its length": (Shrinking(), "data: train: its length was 12 and is 11 now; it must not change"),
    "it is shorter than it says": (Items(lambda n: [][n]), "data: train: sample 0 of 12: it raised IndexError"),
    "it raises in the middle": (Items(failing), "data: train: sample 7 of 12: it raised RuntimeError: the disk is on"),
    "images of mixed size": (
        at(5, (torch.zeros(3, 4, 5), 0)),
        "data: train: sample 5 has shape (3, 4, 5) where sample 0 has (3, 4, 4); make them equal first",
    ),
    "words as labels": (
        (GOOD[0], WORDS),
        "data: train: label 0 is 'cat'; give whole numbers from 0, or the names of all classes in order",
    ),
    "words of a data set": (
        Items(lambda n: (torch.zeros(3, 4, 4), str(WORDS[n]))),
        "data: train: label 0 is 'cat'; give",
    ),
    "labels below the range": ((GOOD[0], LABELS - 1), "data: train label 0 is -1; labels must lie in 0 .. 1"),
    "labels far above the range": ((GOOD[0], LABELS * 100), "train labels go up to 200, more classes than samples"),
    "labels with fractions": (
        (GOOD[0], LABELS / 2),
        "train labels must be a non-empty vector of whole numbers, found fl",
    ),
    "vectors as labels": ((GOOD[0], np.eye(12)), "must be a non-empty vector of whole numbers, found float64 (12, 12)"),
    "fewer labels": ((GOOD[0], LABELS[:11]), "data: train: 12 inputs but 11 labels"),
    "no samples": (TensorDataset(torch.zeros(0, 3), torch.zeros(0)), "data: train: has no samples"),
    "empty arrays": ((GOOD[0][:0], LABELS[:0]), "data: train: has no samples"),
    "no clients": ([], "data: train has no clients; give one data set per client"),
    "an empty client": (
        [GOOD, (GOOD[0][:0], LABELS[:0])],
        "data: client '1': has no samples; leave it out, or fill it",
    ),
    "clients of different shapes": (
        {"a": GOOD, "b": (GOOD[0][:, :, :3], LABELS)},
        "data: client 'b': sample 0 has shape (1, 3, 4) where data: client 'a': sample 0 has (1, 4, 4)",
    ),
    "clients of different types": (
        [GOOD, (GOOD[0].astype(np.uint8), LABELS)],
        "data: client '1': sample 0 is of type uint8 where data: client '0': sample 0 is float32; use one type",
    ),
    "not finite": ((np.full((12, 3), np.nan), LABELS), "data: train: inputs are not all finite"),
    "no length": (Endless(), "data: train: a Endless has no length; give a map-style data set"),
    "three values": (at(0, (1, 2, 3)), "data: train: sample 0 of 12: is 3 values; it should be an input and a label"),
    "no pair": (at(0, 5), "data: train: sample 0 of 12: is int; it should be an input and a label"),
    "columns without a usual name": (at(0, {"a": 1, "b": 2}), "has the columns a, b; name that of the inputs 'image'"),
    "text": (at(0, ("to be", 0)), "data: train: sample 0 is <U5, not numbers; convert it in the data set"),
    "a path": ("train.npz", "data: train: a str holds no samples; give a data set with __len__ and __getitem__"),
    "a number": (7, "data: train: a int holds no samples"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_data_set_that_cannot_be_used_is_refused(case: str) -> None:
    train, message = CASES[case]
    with pytest.raises(UserError) as caught:
        source_of((train, GOOD), "data")
    assert message in str(caught.value) and "\n" not in str(caught.value)


FORMS: dict[str, tuple[Any, str]] = {
    "no test": ({"train": GOOD}, "data: has the keys train; it should have train and test"),
    "a typing mistake": ({"train": GOOD, "test": GOOD, "clases": []}, "has the keys train, test, clases; it should"),
    "classes are no list": (
        {"train": GOOD, "test": GOOD, "classes": "ab"},
        "classes must be a list of different names",
    ),
    "a class twice": ({"train": GOOD, "test": GOOD, "classes": ["a", "b", "a"]}, "a list of different names"),
    "fewer classes": (
        {"train": GOOD, "test": GOOD, "classes": ["a", "b"]},
        "train label 2 is 2; labels must lie in 0 ..",
    ),
    "a word that is no class": (
        {"train": (GOOD[0], WORDS), "test": GOOD, "classes": ["cat", "fish"]},
        "data: train: label 1 is 'dog', not one of the classes cat, fish",
    ),
    "other types": ((GOOD, (GOOD[0].astype(np.uint8), LABELS)), "train inputs are float32 and test inputs uint8"),
    "other shapes": (
        (GOOD, (GOOD[0][:, :, :2], LABELS)),
        "train inputs have shape (1, 4, 4) and test inputs (1, 2, 4)",
    ),
    "other labels": ((GOOD, (GOOD[0], LABELS + 1)), "test label 2 is 3; labels must lie in 0 .. 2"),
    "something else": (object(), "data: found object; give train inputs, train labels, test inputs and test labels"),
    "three things": ((GOOD, GOOD, GOOD), "data: found tuple; give train inputs"),
}


@pytest.mark.parametrize("case", FORMS)
def test_a_form_that_is_not_known_is_refused(case: str) -> None:
    given, message = FORMS[case]
    with pytest.raises(UserError) as caught:
        source_of(given, "data")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_data_set_that_raises_shows_its_own_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "sample 7 of 12: it raised RuntimeError: the disk is on fire" in refusal(
        tmp_path, capsys, f"data.name={__name__}:failing_data"
    )
    with pytest.raises(UserCodeError) as caught:
        source_of(failing_data(), "data")
    assert 'raise RuntimeError("the disk is on fire")' in caught.value.traceback
    assert "isfl/data" not in caught.value.traceback
