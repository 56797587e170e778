"""BatchNorm in training with the ReLU and the 2x2 max-pooling behind it (see `norm.c`), as a function of autograd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isfl.kernels.library import as_images, call, in_large_pages


@dataclass(frozen=True)
class Moments:
    """Mean and variance of each channel over the pixels of a batch, in double precision."""

    mean: Tensor
    variance: Tensor
    pixels: int

    @property
    def unbiased(self) -> Tensor:
        """The variance that running statistics estimate."""
        return self.variance * (self.pixels / (self.pixels - 1))


def moments(images: Tensor) -> Moments:
    """Return the moments of (n, H, W, C) images."""
    channels = images.shape[3]
    mean, variance = torch.empty(2, channels, dtype=torch.float64, device="cpu")
    pixels = images.numel() // channels
    call("moments", images, mean, variance, images.new_empty(channels), pixels, channels)
    return Moments(mean, variance, pixels)


def normalise(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, pool: bool) -> tuple[Tensor, Moments]:
    """Return `relu(batch_norm(x))`, its largest values in each 2x2 cell if `pool`, and the moments of x.

    x is (N, C, H, W), float32 on the CPU, with C a multiple of `CHANNELS`. The result has channels last, and so has its
    gradient.
    """
    found: list[Moments] = []
    result: Tensor = _Normalise.apply(x, weight, bias, epsilon, pool, found)  # type: ignore[no-untyped-call]
    return result, found[0]


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, pool: bool, found: list[Moments]
    ) -> Tensor:
        images = as_images(x)
        batch = moments(images)
        found.append(batch)
        inverse = torch.rsqrt(batch.variance + epsilon)
        scale = weight.detach() * inverse
        line = torch.stack([scale, bias.detach() - batch.mean * scale]).float()
        ctx.save_for_backward(images, line, batch.mean, inverse)
        ctx.pool = pool
        n, height, width, channels = images.shape
        shape = (n, channels, height // 2, width // 2) if pool else (n, channels, height, width)
        out = in_large_pages(torch.empty(shape, dtype=torch.float32, device="cpu", memory_format=torch.channels_last))
        call("normalise_pool" if pool else "normalise", images, line[0], line[1], out, *_sizes(images, pool))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, line, mean, inverse = ctx.saved_tensors
        gradients, sizes = as_images(gradient), _sizes(images, ctx.pool)
        table = torch.zeros(5, images.shape[3], dtype=torch.float32, device="cpu")
        table[:2], table[2] = line, mean
        sums, products = torch.empty(2, images.shape[3], dtype=torch.float64, device="cpu")
        call("pool_gradient_sums" if ctx.pool else "gradient_sums", gradients, images, table, sums, products, *sizes)
        pixels = images.numel() // images.shape[3]
        table[3] = line[0] * inverse.square() * products / -pixels
        table[4] = line[0] * sums / -pixels
        out = in_large_pages(torch.empty_like(images))
        call("normalise_pool_gradient" if ctx.pool else "normalise_gradient", gradients, images, table, out, *sizes)
        return out.permute(0, 3, 1, 2), (products * inverse).float(), sums.float(), None, None, None


def _sizes(images: Tensor, pool: bool) -> tuple[int, ...]:
    """Return what the C functions want to know: all sizes for pooling, else the numbers of pixels and channels."""
    channels = images.shape[3]
    return tuple(images.shape) if pool else (images.numel() // channels, channels)
