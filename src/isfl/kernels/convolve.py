"""The compiled 3x3 convolution with its gradients, as a function of autograd.

It uses minimal filtering (see `winograd.c`), or for few input channels none (see `few.c`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isfl.kernels import few, tiles
from isfl.kernels.library import CHANNELS, as_images
from isfl.kernels.tiles import Then


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `F.conv2d(x, weight, bias, padding=1)` for x (N, C, H, W) and weight (O, C, 3, 3), float32 on the CPU.

    O is a multiple of `CHANNELS`; so is C, unless it is at most `few.MOST`. The result has channels last, and so has
    its gradient.
    """
    # Views, because autograd does not tell whether the gradient of a parameter itself is needed.
    parameters = (weight.view_as(weight), None if bias is None else bias.view_as(bias))
    result: Tensor = _Convolution.apply(x, *parameters)  # type: ignore[no-untyped-call]
    return result


def is_compiled_for(inputs: int) -> bool:
    """Return whether a convolution over this number of channels is compiled."""
    return inputs % CHANNELS == 0 or inputs <= few.MOST


def forward(images: Tensor, weight: Tensor, bias: Tensor | None, then: Then = Then.NOTHING) -> Tensor:
    """Return the convolution of (N, H, W, C) images, (N, O, H, W), with channels last.

    `Then.RELU_AND_POOL` needs more than `few.MOST` channels.
    """
    if weight.shape[1] <= few.MOST:
        assert then is not Then.RELU_AND_POOL
        return few.forward(images, weight, bias, then is Then.RELU)
    return tiles.forward(images, weight, bias, then)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return forward(as_images(x), weight, None if bias is None else bias.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        for_weight, for_bias = (*map(_wanted, ctx.next_functions[1:]), False)[:2]  # there may be no bias
        gradients = as_images(gradient)
        way = few if weight.shape[1] <= few.MOST else tiles
        dx, dweight, dbias = way.backward(
            gradients, as_images(x), weight, ctx.needs_input_grad[0], for_weight or for_bias
        )
        return None if dx is None else dx.permute(0, 3, 1, 2), dweight, dbias if for_bias else None


def _wanted(edge: tuple[Any, int]) -> bool:
    """Return whether this backward pass needs the gradient there. `ctx.needs_input_grad` only tells what could be
    needed, and an unneeded weight gradient is a third of the work."""
    node, _ = edge
    return node is not None and bool(torch._C._will_engine_execute_node(node))
