"""The compiled functions of `winograd.c` and `sums.c` on tensors.

Tensors are float32, images contiguous as (n, H, W, C), weights (O, C, 3, 3).
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from isfl.kernels.library import block_rows, call, in_large_pages, lanes, scratch

CACHED = 1 << 20
"""The most bytes of transformed tiles that are processed at a time. With small weights it is half as many, so that all
of it stays in a core's cache; large weights do not fit there anyway, and are read again for every group of images.
Sizes alone decide which images are processed together, so all processes get the same bits."""


class Then(IntEnum):
    """What is done to the outputs of a convolution in the same pass; the C file knows the numbers."""

    NOTHING = 0
    RELU = 1
    RELU_AND_POOL = 2


def forward(images: Tensor, weight: Tensor, bias: Tensor | None, then: Then = Then.NOTHING) -> Tensor:
    """Return the convolution, (n, O, H, W), with channels last; not a view, which autograd users would copy.

    ReLU needs a bias. Pooling takes the largest of each 2x2 pixels.
    """
    n, height, width, _ = images.shape
    cell = 2 if then is Then.RELU_AND_POOL else 1
    size = (n, len(weight), height // cell, width // cell)
    out = in_large_pages(torch.empty(size, dtype=images.dtype, device=images.device, memory_format=torch.channels_last))
    together, memory = _together(images, weight)
    call("forward", images, weight, bias, out, memory, *_weight(weight), n, height, width, together, then)
    return out


def backward(
    gradients: Tensor, images: Tensor, weight: Tensor, for_images: bool, for_weight: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of images, weights and bias from the gradients at the outputs, (n, H, W, O)."""
    outputs, inputs = weight.shape[:2]
    dimages = in_large_pages(torch.empty_like(images)) if for_images else None
    dweight = weight.new_empty(9, inputs, outputs) if for_weight else None
    dbias = weight.new_zeros(outputs) if for_weight else None
    together, memory = _together(images, weight)
    wanted = (dimages, dweight, dbias)
    call("backward", gradients, images, weight, *wanted, memory, *_weight(weight), *images.shape[:3], together)
    if dweight is not None:
        dweight = dweight.view(3, 3, inputs, outputs).permute(3, 2, 0, 1)
    return dimages, dweight, dbias


def weight_gradients(gradients: Tensor, images: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return the weight gradient of each image, in blocks: (n, O / lanes, C / rows, 9, rows, lanes).

    Each output's gradient is multiplied by its `scale` (O,), if there is one.
    """
    n, height, width, inputs = images.shape
    outputs = gradients.shape[3]
    out = images.new_empty(n, outputs // lanes(), inputs // block_rows(), 9, block_rows(), lanes())
    memory = scratch(36 * _values(images, inputs + outputs, 1))
    call("weight_gradients", gradients, images, _row(scale), out, memory, outputs, inputs, n, height, width)
    return out


def squared_differences(gradients: Tensor, images: Tensor, other: Tensor | None, scale: Tensor | None = None) -> Tensor:
    """Return `||weight gradient - other||^2`, (n,), in double precision; `other` from `weight_gradients`, or zero."""
    n, height, width, inputs = images.shape
    outputs = gradients.shape[3]
    out = images.new_empty(n, dtype=torch.float64)
    memory = scratch(36 * _values(images, inputs + outputs, 1))
    call("squared_differences", gradients, images, _row(scale), other, out, memory, outputs, inputs, n, height, width)
    return out


def channel_sums(gradients: Tensor, values: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return `sum g` and `sum g (z - shift)` over the pixels of each image, (n, C) each."""
    n, height, width, channels = gradients.shape
    sums, products = gradients.new_empty(n, channels), gradients.new_empty(n, channels)
    call("channel_sums", gradients, values, _row(shift), sums, products, n, height * width, channels)
    return sums, products


def _row(values: Tensor | None) -> Tensor | None:
    """Return the values contiguous in memory, as C expects them."""
    return None if values is None else values.contiguous()


def _weight(weight: Tensor) -> tuple[int, ...]:
    """Return the numbers of outputs and inputs, and the strides of all dimensions."""
    return (*weight.shape[:2], *weight.stride())


def _together(images: Tensor, weight: Tensor) -> tuple[int, Tensor]:
    """Return how many images are processed together, and memory for transformed weights and tiles."""
    channels = weight.shape[0] + weight.shape[1]
    cached = min(CACHED, max(CACHED // 2, 4 * 36 * weight.shape[0] * weight.shape[1]))
    together = max(1, min(len(images), cached // (4 * 36 * _tiles(images) * channels)))
    weights = 2 * (weight.shape[0] * weight.shape[1] + lanes())
    return together, scratch(36 * (weights + _values(images, channels, together)))


def _values(images: Tensor, channels: int, together: int) -> int:
    """Return the number of values of the images' tiles at each of 36 positions."""
    return (together * _tiles(images) | 1) * channels


def _tiles(images: Tensor) -> int:
    """Return the number of tiles of 4x4 outputs in an image."""
    _, height, width, _ = images.shape
    return -(-height // 4) * -(-width // 4)
