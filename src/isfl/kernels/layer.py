"""`nn.Conv2d` that takes the fast way wherever it can."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isfl.kernels.convolve import convolve
from isfl.kernels.library import CHANNELS, available, takes


class FastConv2d(nn.Conv2d):
    """A convolution for which `suits` holds: same parameters, same names, same results but for rounding."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return convolve(input, weight, bias) if self.takes(input) else super()._conv_forward(input, weight, bias)

    def takes(self, input: Tensor) -> bool:
        """Whether this input goes the fast way."""
        return self.in_channels % CHANNELS == 0 and self.tiles(input)

    def tiles(self, input: Tensor) -> bool:
        """Whether it could, with channels of zeros if need be: a batch of float32 images on the CPU. That is worth it
        for weight gradients of single images alone. What is wrong with an input, torch says."""
        batch = input.dim() == 4 and input.shape[1] == self.in_channels and input.numel() > 0
        return batch and takes(input, *self.parameters()) and not torch.is_autocast_enabled("cpu")


def suits(layer: nn.Module) -> bool:
    """3x3, images as large as before, outputs in multiples of `CHANNELS`. Not a subclass: who knows what it does."""
    return (
        type(layer) is nn.Conv2d
        and layer.kernel_size == (3, 3)
        and layer.padding in ((1, 1), "same")
        and layer.padding_mode == "zeros"
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.out_channels % CHANNELS == 0
    )


def with_fast_convolutions(model: nn.Module) -> nn.Module:
    """The model itself, with every convolution that suits made fast; as it was where the machine has no compiler."""
    if available():
        for layer in model.modules():
            if suits(layer):
                layer.__class__ = FastConv2d
    return model
