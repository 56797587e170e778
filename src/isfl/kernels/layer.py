"""`nn.Conv2d` that takes the fast way wherever it can."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isfl.kernels.convolve import convolve
from isfl.kernels.library import CHANNELS, available, takes


class FastConv2d(nn.Conv2d):
    """Parameters, names and, but for rounding, results of its parent; where it cannot be fast, it is its parent."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        parameters = (weight,) if bias is None else (weight, bias)
        fast = self.in_channels % CHANNELS == 0 and self.tileable(input) and takes(*parameters)
        return convolve(input, weight, bias) if fast else super()._conv_forward(input, weight, bias)

    def tileable(self, input: Tensor) -> bool:
        """Whether this is a batch of float32 images on the CPU that can be cut into tiles. What is wrong with an input,
        torch says.

        Inputs of any number of channels can, if zeros are added to them. For weight gradients of single images that is
        worth it, for the convolution itself it is not.
        """
        batch = input.dim() == 4 and input.shape[1] == self.in_channels and input.numel() > 0
        return batch and takes(input) and suits(self) and not torch.is_autocast_enabled("cpu")


def suits(layer: nn.Conv2d) -> bool:
    """3x3, images as large as before, outputs in multiples of `CHANNELS`."""
    return (
        layer.kernel_size == (3, 3)
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
            if type(layer) is nn.Conv2d and suits(layer):  # of a subclass, who knows what it does
                layer.__class__ = FastConv2d
    return model
