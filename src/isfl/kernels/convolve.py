"""The 3x3 convolution by minimal filtering (see `winograd.c`) with its gradients, as a function of autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isfl.kernels import tiles
from isfl.kernels.library import as_images


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `F.conv2d(x, weight, bias, padding=1)` for x (N, C, H, W) and weight (O, C, 3, 3), float32 on the CPU.

    C and O are multiples of `CHANNELS`. The result has channels last, and so has its gradient.
    """
    # Views, because autograd does not tell whether the gradient of a parameter itself is needed.
    parameters = (weight.view_as(weight), None if bias is None else bias.view_as(bias))
    result: Tensor = _Convolution.apply(x, *parameters)  # type: ignore[no-untyped-call]
    return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return tiles.forward(as_images(x), weight, None if bias is None else bias.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        for_weight, for_bias = (*map(_wanted, ctx.next_functions[1:]), False)[:2]  # there may be no bias
        gradients = as_images(gradient)
        dx, dweight, dbias = tiles.backward(
            gradients, as_images(x), weight, ctx.needs_input_grad[0], for_weight or for_bias
        )
        return None if dx is None else dx.permute(0, 3, 1, 2), dweight, dbias if for_bias else None


def _wanted(edge: tuple[Any, int]) -> bool:
    """Return whether this backward pass needs the gradient there. `ctx.needs_input_grad` only tells what could be
    needed, and an unneeded weight gradient is a third of the work."""
    node, _ = edge
    return node is not None and bool(torch._C._will_engine_execute_node(node))
