"""The C files of this room as one library."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from isfl.kernels.compiler import compiled

CHANNELS = 16
"""Channels come in multiples of this: of the longest vectors that processors have."""

_SIGNATURES = {
    "forward": (5, 10),
    "backward": (7, 10),
    "weight_gradients": (5, 5),
    "squared_differences": (6, 5),
    "channel_sums": (5, 3),
}
"""Pointers and sizes that a function takes."""


@cache
def _library() -> ctypes.CDLL | None:
    library = compiled(sorted(Path(__file__).parent.glob("*.c")))
    if library is not None:
        for name, (pointers, sizes) in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_long] * sizes
            function.restype = None
    return library


def available() -> bool:
    """Whether this machine has what it takes."""
    return _library() is not None


def lanes() -> int:
    """How long this machine's vectors are."""
    return int(_surely().lanes())


def block_rows() -> int:
    """Weights of so many inputs, and outputs as many as a vector has lanes, make a block."""
    return int(_surely().block_rows())


def call(name: str, *arguments: Tensor | int | None) -> None:
    """Tensors are float32 (squares: float64) on the CPU, and laid out as the C file says: nothing is checked there."""
    getattr(_surely(), name)(*(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))


def _surely() -> ctypes.CDLL:
    library = _library()
    assert library is not None, "no compiled functions on this machine"
    return library


def takes(*tensors: Tensor) -> bool:
    """Whether the compiled library is there and these are float32 tensors on the CPU."""
    return available() and all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)


def as_images(x: Tensor) -> Tensor:
    """(N, H, W, C) of (N, C, H, W); a copy only where channels are not last yet."""
    return x.permute(0, 2, 3, 1).contiguous()
