"""Transforms that do not fit the data are refused with one line before the first round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.refusals import refusal


def vectors() -> tuple[np.ndarray, ...]:
    return np.ones((200, 5)), np.arange(200) % 4, np.ones((20, 5)), np.arange(20) % 4


def smaller(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch[:, :, 1:]


def fewer(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch[1:]


def as_floats(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch / 255


def not_finite(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch * float("nan")


def as_array(batch: Tensor, generator: torch.Generator) -> np.ndarray:
    return batch.numpy()


def nothing(batch: Tensor, generator: torch.Generator) -> None:
    return None


def raising(batch: Tensor, generator: torch.Generator) -> Tensor:
    raise RuntimeError("the scanner is jammed")


def greedy(batch: Tensor, generator: torch.Generator, more: int) -> Tensor:
    return batch


def by_sample(image: Tensor) -> Tensor:
    return image[:, 1:]


def counting(batch: Tensor, generator: torch.Generator) -> Tensor:
    CALLED.append(len(batch))
    return batch + len(CALLED)


def own_generator(batch: Tensor) -> Tensor:
    return batch + torch.from_numpy(OWN.integers(0, 99, (len(batch), 1, 1, 1), np.uint8))


CALLED: list[int] = []
OWN = np.random.default_rng(0)
VECTORS = f"data.name={__name__}:vectors"


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (["crp"], "training.augment.0.kind: found 'crp'; choose one of 'crop', 'flip', 'own'"),
        ([{"padding": 2}], "training.augment.0: needs the key 'kind'"),
        ([{"kind": "crop", "padding": 0}], "training.augment.0.padding: found 0"),
        (["flip", {"kind": "flip", "probability": 1.5}], "training.augment.1.probability: found 1.5"),
        (["a b:c"], "training.augment.0: found 'a b:c'"),
        (["no_such_module:f"], "training.augment = 'no_such_module:f': cannot import 'no_such_module'"),
        ([f"{__name__}:absent"], "has no 'absent'"),
        ([f"{__name__}:smaller"], "into torch.uint8 (2, 1, 27, 28); it should keep type and shape"),
        ([f"{__name__}:fewer"], "into torch.uint8 (1, 1, 28, 28); it should keep type and shape"),
        ([f"{__name__}:as_floats"], "a batch of torch.uint8 (2, 1, 28, 28) into torch.float32"),
        ([f"{__name__}:as_array"], "it returned ndarray; it should return a tensor"),
        ([f"{__name__}:nothing"], "it returned NoneType; it should return a tensor"),
        ([f"{__name__}:raising"], "it raised RuntimeError: the scanner is jammed"),
        ([f"{__name__}:greedy"], "it raised TypeError: greedy() missing 1 required positional argument: 'more'"),
        (
            [{"kind": "own", "function": f"{__name__}:by_sample", "per": "sample"}],
            "it turned a sample of torch.uint8 (1, 28, 28) into torch.uint8 (1, 27, 28); it should keep type and shape",
        ),
        ([f"{__name__}:counting"], "returns different results for the same batch and seed; it must have no state"),
        ([f"{__name__}:own_generator"], "returns different results for the same batch and seed"),
        ([f"{__name__}:CALLS"], "it raised TypeError: 'list' object is not callable"),
    ],
    ids=str,
)
def test_a_transform_that_does_not_fit_is_refused_before_the_first_round(
    transforms: list[Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "{" + ", ".join(f"{key} = {value!r}" for key, value in entry.items()) + "}"
        if isinstance(entry, dict)
        else repr(entry)
        for entry in transforms
    ]
    line = refusal(tmp_path, capsys, f"training.augment=[{', '.join(words)}]")
    assert "training.augment" in line and message in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("crop", "'crop' needs images (channels, height, width), the data has inputs of shape (5,)"),
        ("flip", "'flip' needs images (channels, height, width), the data has inputs of shape (5,)"),
        (f"{__name__}:not_finite", "it returned values that are not finite"),
    ],
)
def test_a_transform_that_does_not_fit_vectors_is_refused(
    transform: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(tmp_path, capsys, VECTORS, f"training.augment=['{transform}']")
    assert "training.augment" in line and message in line
    assert not (tmp_path / "out").exists()


CALLS: list[int] = []


def raising_later(batch: Tensor, generator: torch.Generator) -> Tensor:
    CALLS.append(len(batch))
    if len(CALLS) > 6:  # it is tried five times before the first round
        raise RuntimeError("the scanner is jammed")
    return batch


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_transform_that_fails_in_a_round_ends_the_run_with_one_line(
    jobs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CALLS.clear()
    line = refusal(tmp_path, capsys, f"training.augment=['{__name__}:raising_later']", "training.rounds=50", jobs=jobs)
    assert "it raised RuntimeError: the scanner is jammed" in line
