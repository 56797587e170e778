"""Inputs in a file of the cache, for data sets that are larger than memory: rows are read when a batch needs them.

The file is written once per data set while its samples are decoded, and is named after the SHA-256 of its content. Rows
are read, not mapped: the pages of a mapped file would count as memory of every process that touches them.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import torch
from torch import Tensor

from isfl.errors import UserError
from isfl.files import cache_directory

FOLDER = "decoded"
"""Of the cache. Files in it can be removed when no run uses them."""


class RowFile:
    """A file of rows of one shape and type, open for reading; processes can share it."""

    def __init__(self, path: Path, row: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path, self.row, self.dtype = path, row, dtype
        self.bytes_per_row = math.prod(row) * dtype.itemsize
        self._descriptor = os.open(path, os.O_RDONLY)  # the rows stay readable if the file is removed from the cache
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowFile, (self.path, self.row, self.dtype)

    def read(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at these positions, in this order; neighbours are read together."""
        rows = np.empty((len(positions), *self.row), self.dtype)
        flat = rows.reshape(len(positions), math.prod(self.row))
        ends = np.flatnonzero(np.diff(positions) != 1) + 1
        for start, stop in zip([0, *ends], [*ends, len(positions)], strict=True):
            if start < stop:
                self._fill(flat[start:stop].data.cast("B"), int(positions[start]) * self.bytes_per_row)
        return rows

    def _fill(self, target: memoryview, offset: int) -> None:
        while target:
            count = os.preadv(self._descriptor, [target], offset)
            if count == 0:
                raise UserError(f"{self.path}: is truncated; remove it and start again")
            target, offset = target[count:], offset + count


@dataclass(frozen=True, eq=False)
class StoredInputs:
    """Rows of a file, in any order, in place of a tensor: indexing reads a copy into memory."""

    file: RowFile
    positions: np.ndarray
    """(N,) of the rows in the file."""

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *self.file.row))

    @property
    def dtype(self) -> torch.dtype:
        return torch.from_numpy(np.empty(0, self.file.dtype)).dtype

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return torch.from_numpy(self.file.read(self._chosen(rows)))

    def view(self, rows: slice | Tensor) -> StoredInputs:
        """Return these rows without reading them."""
        return StoredInputs(self.file, self._chosen(rows))

    def reshaped(self, row: tuple[int, ...]) -> StoredInputs:
        """Return the same rows with another shape."""
        return StoredInputs(RowFile(self.file.path, row, self.file.dtype), self.positions)

    def _chosen(self, rows: slice | Tensor) -> np.ndarray:
        match rows:
            case slice():
                return self.positions[rows]
            case Tensor():
                return self.positions[rows.numpy()]
            case _:
                assert_never(rows)


class RowWriter:
    """Writes rows to a draft; `finish` gives it its name."""

    def __init__(self, row: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.row, self.dtype, self.count = row, dtype, 0
        self._digest = hashlib.sha256(f"{dtype.str} {row}".encode())
        with _disk():
            folder = cache_directory() / FOLDER
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".draft-", dir=folder)
        self._stream, self._draft = os.fdopen(descriptor, "wb"), Path(name)
        self._discard = weakref.finalize(self, _discard, self._stream, self._draft)

    def close(self) -> None:
        """Remove the draft, unless it was finished."""
        self._discard()

    def add(self, rows: np.ndarray) -> None:
        content = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        self._digest.update(content)
        with _disk():
            self._stream.write(content)
        self.count += len(rows)

    def finish(self) -> StoredInputs:
        """Return all rows; the same content written before is replaced, so that damage does not last."""
        with _disk():
            self._stream.flush()
            os.fsync(self._stream.fileno())
            path = self._draft.replace(self._draft.with_name(f"{self._digest.hexdigest()}.rows"))
        return StoredInputs(RowFile(path, self.row, self.dtype), np.arange(self.count))


def _discard(stream: Any, draft: Path) -> None:
    stream.close()
    draft.unlink(missing_ok=True)


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{cache_directory()}: the cache cannot be written ({error.strerror}); set ISFL_CACHE to a larger disk"
        ) from None
