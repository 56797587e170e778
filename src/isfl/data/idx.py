"""The IDX format of MNIST and data sets like it."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from isfl.errors import UserError

FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def read_official(directory: Path) -> dict[str, np.ndarray]:
    """Read the four official files, compressed (`.gz`) or not."""
    arrays = {}
    for key, name in FILES.items():
        found = [file for file in (directory / f"{name}.gz", directory / name) if file.is_file()]
        if not found:
            raise UserError(f"{directory}: lacks {name} (or {name}.gz), one of the four official files")
        arrays[key] = read_idx(found[0])
    return arrays


def read_idx(file: Path) -> np.ndarray:
    """Read a file: two zero bytes, the type (8: bytes), the number of dimensions, each size in four bytes, the data."""
    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        if raw[:3] != b"\x00\x00\x08":
            raise ValueError("it does not start as an IDX file of bytes")
        shape = np.frombuffer(raw, ">u4", count=raw[3], offset=4).astype(int)
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape).copy()
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise UserError(f"{file}: damaged or not an IDX file ({error})") from None
