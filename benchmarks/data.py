"""The images that all contestants train on: ten clients' i.i.d. slices of CIFAR-10's training set, as two files.

A separate program (`python -m benchmarks.data FOLDER IMAGES [tokens]`): isfl's reader imports torch, and torch in the
harness would share its pages with only some contestants, which would falsify the comparison of memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.contestants.networks import LENGTH, WORDS
from isfl.data.cache import recall
from isfl.files import cache_directory


def write(folder: Path, images: int) -> bool:
    """Write `images.npy` (bytes) and `labels.npy` (int64) to `folder`; return False without CIFAR-10."""
    arrays = recall("cifar10", ("train_images", "train_labels"))
    if arrays is None:
        return False
    chosen = np.random.default_rng(0).permutation(len(arrays["train_labels"]))[:images]
    np.save(folder / "images.npy", np.ascontiguousarray(arrays["train_images"][chosen]))
    np.save(folder / "labels.npy", arrays["train_labels"][chosen].astype(np.int64))
    return True


def write_tokens(folder: Path, sequences: int) -> None:
    """Write sequences of tokens in the place of images: random ones, no time depends on the values."""
    rng = np.random.default_rng(0)
    np.save(folder / "images.npy", rng.integers(0, WORDS, (sequences, LENGTH)))
    np.save(folder / "labels.npy", rng.integers(0, 10, sequences))


if __name__ == "__main__":
    if sys.argv[3:] == ["tokens"]:
        write_tokens(Path(sys.argv[1]), int(sys.argv[2]))
    elif not write(Path(sys.argv[1]), int(sys.argv[2])):
        sys.exit(f"CIFAR-10 is not in {cache_directory()}: get it with `isfl data get cifar10`")
