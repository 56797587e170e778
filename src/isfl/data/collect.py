"""Collects the inputs of many samples: one array in memory, or a file of the cache if they are large."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from isfl.data.checks import checked_inputs
from isfl.data.stored import RowWriter, StoredInputs
from isfl.errors import UserError

IN_MEMORY = 1 << 28
"""Bytes of inputs that are kept in memory; more go to a file."""
PADDING = 0
"""Fills sequences of tokens up to the longest."""

Inputs = Tensor | StoredInputs


class Collector:
    """Takes `count` inputs in order and returns them as a whole."""

    def __init__(self, count: int) -> None:
        self.count, self.taken = count, 0
        self.lengths: set[int] = set()
        """Of the sequences, if the inputs are tokens."""
        self.has_padding_token = False
        """Whether a sequence has the token that is used for padding."""
        self._array: np.ndarray | None = None
        self._writer: RowWriter | None = None
        self._row: tuple[int, ...] = ()
        self._dtype: np.dtype[Any] | None = None
        self._first = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, samples: np.ndarray | Sequence[np.ndarray], where: str, first: int) -> None:
        """Take samples; `first` is the number of the first one in the data set that errors call `where`."""
        if _are_tokens(samples):
            self.lengths |= {len(sample) for sample in samples}
            self.has_padding_token |= any(bool((sample == PADDING).any()) for sample in samples)
            samples = padded(samples, max(self.lengths))
        elif not isinstance(samples, np.ndarray):
            _check_equal_shapes(samples, where, first)
        rows = checked_inputs(np.asarray(samples), f"{where}: inputs")
        if self._dtype is None:
            self._begin(rows, f"{where}: sample {first}")
        if rows.dtype != self._dtype:
            raise UserError(
                f"{where}: sample {first} is of type {rows.dtype} where {self._first} is {self._dtype}; use one type"
            )
        if rows.shape[1:] != self._row:
            rows = self._fitted(rows, f"{where}: sample {first}")
        if self._writer is not None:
            self._writer.add(rows)
        else:
            assert self._array is not None
            self._array[self.taken : self.taken + len(rows)] = rows
        self.taken += len(rows)

    def finish(self) -> Inputs:
        """Return everything that was added."""
        assert self.taken == self.count
        if self._writer is not None:
            return self._writer.finish()
        assert self._array is not None
        return torch.from_numpy(self._array)

    def _begin(self, rows: np.ndarray, first: str) -> None:
        self._row, self._dtype, self._first = rows.shape[1:], rows.dtype, first
        if self.count * rows[0].nbytes > IN_MEMORY:
            self._writer = RowWriter(self._row, rows.dtype)
        else:
            self._array = np.empty((self.count, *self._row), rows.dtype)

    def _fitted(self, rows: np.ndarray, place: str) -> np.ndarray:
        """Pad tokens, these or those that came before; refuse anything else of another shape."""
        if not (self.lengths and self._array is not None and rows.ndim == self._array.ndim == 2):
            raise UserError(
                f"{place} has shape {rows.shape[1:]} where {self._first} has {self._row}; make them equal first"
            )
        width = max(self.lengths)
        self._row = (width,)
        self._array = padded(self._array, width)
        return padded(rows, width)


def padded(sequences: np.ndarray | Sequence[np.ndarray], width: int) -> np.ndarray:
    """Return (N, width) tokens, with `PADDING` after the end of each sequence."""
    if isinstance(sequences, np.ndarray):
        return np.pad(sequences, ((0, 0), (0, width - sequences.shape[1])), constant_values=PADDING)
    rows = np.full((len(sequences), width), PADDING, np.int64)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = sequence
    return rows


def _are_tokens(samples: np.ndarray | Sequence[np.ndarray]) -> bool:
    """Whether every sample is a sequence of whole numbers; bytes are images."""
    if isinstance(samples, np.ndarray):
        return samples.ndim == 2 and _is_whole(samples)
    return all(sample.ndim == 1 and _is_whole(sample) for sample in samples)


def _is_whole(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and array.dtype != np.uint8


def _check_equal_shapes(samples: Sequence[np.ndarray], where: str, first: int) -> None:
    for number, sample in enumerate(samples, first):
        if sample.dtype.kind not in "uifb":
            raise UserError(f"{where}: sample {number} is {sample.dtype}, not numbers; convert it in the data set")
        if sample.shape != samples[0].shape:
            raise UserError(
                f"{where}: sample {number} has shape {sample.shape} where sample {first} has {samples[0].shape}; make "
                "them equal first"
            )
