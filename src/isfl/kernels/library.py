"""The C files of this directory as one library."""

from __future__ import annotations

import ctypes
import mmap
import threading
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from isfl.kernels.compiler import CompilerError, compiled

CHANNELS = 16
"""Numbers of channels must be multiples of this, the length of the longest vectors of any processor."""

LARGE = 16 << 20
"""Bytes from which on a block of memory is usually fresh: the C library returns it to the system when it is free."""

_ADVISE = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_HUGEPAGE") else None

_SIGNATURES = {
    "few_forward": (5, 6),
    "few_gradients": (5, 5),
    "forward": (5, 11),
    "backward": (7, 10),
    "weight_gradients": (5, 5),
    "squared_differences": (6, 5),
    "channel_sums": (5, 3),
    "moments": (4, 2),
    "normalise": (4, 2),
    "normalise_pool": (4, 4),
    "gradient_sums": (5, 2),
    "pool_gradient_sums": (5, 4),
    "normalise_gradient": (4, 2),
    "normalise_pool_gradient": (4, 4),
}
"""How many pointers and how many sizes each function takes."""


@cache
def _library() -> ctypes.CDLL | CompilerError:
    try:
        library = compiled(sorted(Path(__file__).parent.glob("*.[ch]")))
    except CompilerError as error:
        return error
    for name, (pointers, sizes) in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_long] * sizes
        function.restype = None
    return library


def available() -> bool:
    """Return whether the C files could be compiled on this machine."""
    return isinstance(_library(), ctypes.CDLL)


def why_unavailable() -> str | None:
    """Return why the C files could not be compiled, in one line; None if they could."""
    library = _library()
    return str(library) if isinstance(library, CompilerError) else None


def lanes() -> int:
    """Return how many float32 values a vector of this machine holds."""
    return int(_surely().lanes())


def block_rows() -> int:
    """Return the number of inputs in a block of weights; its outputs are as many as a vector has lanes."""
    return int(_surely().block_rows())


def call(name: str, *arguments: Tensor | int | None) -> None:
    """Call a C function, which checks nothing: tensors must be float32 (squares: float64) on the CPU, laid out as the C
    file says.
    """
    getattr(_surely(), name)(*(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))


_memory = threading.local()


def scratch(size: int) -> Tensor:
    """Return memory for at least `size` values. Each thread keeps and reuses its own: a fresh block per call would
    fragment the heap."""
    held: Tensor | None = getattr(_memory, "held", None)
    if held is None or held.numel() < size:
        held = _memory.held = torch.empty(size, dtype=torch.float32, device="cpu")
    return held


def in_large_pages(tensor: Tensor) -> Tensor:
    """Return the tensor; if it is large, the system is asked to back its memory with large pages.

    Fresh memory costs a page fault for every 4 KB otherwise. A system that refuses does no harm.
    """
    size = tensor.numel() * tensor.element_size()
    if _ADVISE is not None and size >= LARGE:
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (tensor.data_ptr() + size - start) // mmap.PAGESIZE * mmap.PAGESIZE
        _ADVISE(ctypes.c_void_p(start), ctypes.c_size_t(length), ctypes.c_int(mmap.MADV_HUGEPAGE))
    return tensor


def _surely() -> ctypes.CDLL:
    library = _library()
    assert isinstance(library, ctypes.CDLL), f"no compiled functions: {library}"
    return library


def takes(*tensors: Tensor) -> bool:
    """Return whether the compiled library is available and these are float32 tensors on the CPU."""
    return available() and all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)


def as_images(x: Tensor) -> Tensor:
    """Return (N, H, W, C) images of (N, C, H, W); a copy only if channels are not last yet."""
    return x.permute(0, 2, 3, 1).contiguous()
