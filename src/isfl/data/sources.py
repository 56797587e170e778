"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

import numpy as np
import torch

from isfl.data.dataset import Dataset
from isfl.errors import UserError


@dataclass(frozen=True)
class Source:
    """A training pool that clients share, and the balanced standard test set D_S."""

    train: Dataset
    test: Dataset
    class_names: tuple[str, ...]


def fashion_mnist_mini() -> Source:
    """The embedded data: 6,000 + 2,000 real Fashion-MNIST images (28x28 grey), balanced over 10 classes."""
    with (
        resources.files("isfl.data").joinpath("embedded/fashion-mnist-mini.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        parts = [
            Dataset(
                torch.from_numpy(arrays[f"{part}_images"]).unsqueeze(1),
                torch.from_numpy(arrays[f"{part}_labels"].astype(np.int64)),
                10,
            )
            for part in ("train", "test")
        ]
    names = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
    return Source(parts[0], parts[1], names)


SOURCES: dict[str, Callable[[], Source]] = {"fashion-mnist-mini": fashion_mnist_mini}


def load(name: str) -> Source:
    """The data set of this name."""
    if name not in SOURCES:
        raise UserError(f"data.name is {name!r}; choose one of {', '.join(SOURCES)}")
    return SOURCES[name]()
