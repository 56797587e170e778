"""The C files of this room as one library, called through ctypes."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from isfl.kernels.compiler import compiled

CHANNELS = 16
"""Numbers of channels are multiples of this, the length of the longest processor vectors."""

_SIGNATURES = {
    "forward": (5, 10),
    "backward": (7, 10),
    "weight_gradients": (5, 5),
    "squared_differences": (6, 5),
    "channel_sums": (5, 3),
}
"""The number of pointers and of sizes that each function takes."""


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
    """Return whether the library could be compiled or loaded on this machine."""
    return _library() is not None


def lanes() -> int:
    """Return the number of floats in a vector of this machine."""
    return int(_surely().lanes())


def block_rows() -> int:
    """Return the number of inputs in a block of weights, which has `lanes()` outputs."""
    return int(_surely().block_rows())


def call(name: str, *arguments: Tensor | int | None) -> None:
    """Call a C function. Tensors are float32 (squares: float64) on the CPU in the layout of the C file, unchecked."""
    getattr(_surely(), name)(*(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))


def _surely() -> ctypes.CDLL:
    library = _library()
    assert library is not None, "no compiled functions on this machine"
    return library


def takes(*tensors: Tensor) -> bool:
    """Return whether the compiled library is available and these are float32 tensors on the CPU."""
    return available() and all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)


def as_images(x: Tensor) -> Tensor:
    """Return (N, C, H, W) as (N, H, W, C); a copy only if channels are not last in memory."""
    return x.permute(0, 2, 3, 1).contiguous()
