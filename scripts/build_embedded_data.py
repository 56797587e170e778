"""Rebuild the embedded data from the official Fashion-MNIST files.

    python scripts/build_embedded_data.py /usr/share/datasets/fashion-mnist

The directory must hold the four official `*-ubyte.gz` files; the Debian package `dataset-fashion-mnist`
installs them at the place shown. The first 600 training and 200 test images of each class are taken, in
their official order.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from isfl.data.idx import read_official

PER_CLASS = {"train": 600, "test": 200}
DESTINATION = Path(__file__).parent.parent / "src/isfl/data/embedded/fashion-mnist-mini.npz"


def build(directory: Path) -> dict[str, np.ndarray]:
    """Return the first images of every class, in the official order."""
    official, arrays = read_official(directory), {}
    for part, count in PER_CLASS.items():
        labels = official[f"{part}_labels"]
        kept = np.sort(np.concatenate([np.flatnonzero(labels == c)[:count] for c in range(10)]))
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = official[f"{part}_images"][kept], labels[kept]
    return arrays


if __name__ == "__main__":
    np.savez_compressed(DESTINATION, allow_pickle=False, **build(Path(sys.argv[1])))
    print(f"{DESTINATION}: {DESTINATION.stat().st_size:,} bytes")
