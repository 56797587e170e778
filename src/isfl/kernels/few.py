"""The compiled convolution over few input channels (see `few.c`) on tensors: float32, images (n, H, W, C)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from isfl.kernels.library import call, in_large_pages, scratch

MOST = 4
"""Input channels."""


def forward(images: Tensor, weight: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Return the convolution, (n, O, H, W), with channels last; with `relu`, ReLU of it."""
    n, height, width, inputs = images.shape
    size = (n, len(weight), height, width)
    out = in_large_pages(torch.empty(size, dtype=images.dtype, device=images.device, memory_format=torch.channels_last))
    rows = weight.permute(2, 3, 1, 0).contiguous()
    border = scratch((height + 2) * (width + 2) * inputs)
    call("few_forward", images, rows, bias, out, border, len(weight), inputs, n, height, width, int(relu))
    return out


def backward(
    gradients: Tensor, images: Tensor, weight: Tensor, for_images: bool, for_weight: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of images, weights and bias from the gradients at the outputs, (n, H, W, O)."""
    dimages = dweight = dbias = None
    if for_images:  # of a first layer, hardly anyone asks for it
        dimages = F.conv_transpose2d(gradients.permute(0, 3, 1, 2), weight, padding=1).permute(0, 2, 3, 1)
    if for_weight:
        each, of_bias = weight_gradients(gradients, images)
        dweight, dbias = each.sum(0).permute(3, 2, 0, 1), of_bias.sum(0)
    return dimages, dweight, dbias


def weight_gradients(gradients: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of weights, (n, 3, 3, C, O), and bias, (n, O), of each image."""
    n, height, width, inputs = images.shape
    outputs = gradients.shape[3]
    weights, biases = images.new_zeros(n, 3, 3, inputs, outputs), images.new_zeros(n, outputs)
    border = scratch((height + 2) * (width + 2) * inputs)
    call("few_gradients", gradients, images, weights, biases, border, outputs, inputs, n, height, width)
    return weights, biases
