"""Fashion-MNIST: Xiao, Rasul, Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms", 2017."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np

from isfl.data import idx
from isfl.data.sources.base import DataSettings, NamedSource, Source, source_from
from isfl.errors import UserError

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
DEBIAN_DIRECTORY = "/usr/share/datasets/fashion-mnist"


def fashion_mnist_mini(settings: DataSettings) -> Source:
    """6,000 + 2,000 real Fashion-MNIST images (28x28 grey), balanced over 10 classes, shipped with the package."""
    file = resources.files("isfl.data").joinpath("embedded/fashion-mnist-mini.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return source_from(dict(arrays), CLASSES, "fashion-mnist-mini")


def fashion_mnist(settings: DataSettings) -> Source:
    """60,000 + 10,000 images from the four official files in data.path (default: where Debian's package puts them)."""
    directory = Path(settings.path or DEBIAN_DIRECTORY)
    if settings.path is None and not directory.is_dir():
        raise UserError(
            "data.name = 'fashion-mnist': give data.path the directory of the four official files, or install the "
            "Debian package dataset-fashion-mnist"
        )
    return source_from(idx.read_official(directory), CLASSES, str(directory))


MINI = NamedSource("fashion-mnist-mini", fashion_mnist_mini)
WHOLE = NamedSource("fashion-mnist", fashion_mnist)
