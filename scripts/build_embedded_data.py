"""Rebuild the embedded data from the official Fashion-MNIST files.

    python scripts/build_embedded_data.py /usr/share/datasets/fashion-mnist

The directory must hold the four official `*-ubyte.gz` files; the Debian package `dataset-fashion-mnist`
installs them at the place shown. The first 600 training and 200 test images of each class are taken, in
their official order.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np

PER_CLASS = {"train": 600, "t10k": 200}
DESTINATION = Path(__file__).parent.parent / "src/isfl/data/embedded/fashion-mnist-mini.npz"


def read_idx(path: Path) -> np.ndarray:
    """An IDX file: two zero bytes, the type (8: bytes), the number of dimensions, each as four bytes, the data."""
    raw = gzip.decompress(path.read_bytes())
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">u4", count=dimensions, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def subset(directory: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """The first images of every class, in the official order."""
    images = read_idx(directory / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(directory / f"{part}-labels-idx1-ubyte.gz")
    kept = np.sort(np.concatenate([np.flatnonzero(labels == c)[: PER_CLASS[part]] for c in range(10)]))
    return images[kept], labels[kept]


def build(directory: Path) -> dict[str, np.ndarray]:
    train_images, train_labels = subset(directory, "train")
    test_images, test_labels = subset(directory, "t10k")
    return {
        "train_images": train_images,
        "train_labels": train_labels,
        "test_images": test_images,
        "test_labels": test_labels,
    }


if __name__ == "__main__":
    np.savez_compressed(DESTINATION, allow_pickle=False, **build(Path(sys.argv[1])))
    print(f"{DESTINATION}: {DESTINATION.stat().st_size:,} bytes")
