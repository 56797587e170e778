"""Models in shared memory: a buffer with one row of bytes per model. Nothing is pickled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isfl.federation.values import Weights

ALIGNMENT = 64


@dataclass(frozen=True)
class _Entry:
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    start: int
    bytes: int


class SharedModels:
    """`rows` models of one architecture. Rows are read as tensors that are views of the buffer, not copies."""

    def __init__(self, like: Weights, rows: int) -> None:
        self.entries: list[_Entry] = []
        size = 0
        for name, value in like.items():
            tensor = value.detach()
            # Channels-last stays channels-last; what is laid out with gaps or overlaps becomes plain.
            dense = tensor if _dense(tensor) else tensor.contiguous()
            length = tensor.numel() * tensor.element_size()
            self.entries.append(_Entry(name, tensor.dtype, tuple(tensor.shape), dense.stride(), size, length))
            size += -(-length // ALIGNMENT) * ALIGNMENT
        self.bytes = torch.zeros((rows, max(size, ALIGNMENT)), dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.bytes)

    def read(self, row: int) -> Weights:
        """Return the model in this row as views: they change when the row is written."""
        return {entry.name: self._view(row, entry) for entry in self.entries}

    def write(self, row: int, weights: Weights) -> None:
        """Write the entries that `weights` names; the others keep their values."""
        for entry in self.entries:
            if entry.name in weights:
                self._view(row, entry).copy_(weights[entry.name])

    def copy(self, row: int, names: frozenset[str]) -> Weights:
        """Return copies of the entries with these names."""
        return {entry.name: self._view(row, entry).clone() for entry in self.entries if entry.name in names}

    def _view(self, row: int, entry: _Entry) -> Tensor:
        flat = self.bytes[row, entry.start : entry.start + entry.bytes].view(entry.dtype)
        return flat.as_strided(entry.shape, entry.stride, flat.storage_offset())


def _dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))


def row_bytes(like: Weights) -> int:
    """Return about how many bytes a row takes."""
    return sum(value.numel() * value.element_size() for value in like.values())
