"""An `nn.Conv2d` that uses the compiled convolution (see `convolve.py`) where it can."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isfl.kernels.convolve import convolve, is_compiled_for
from isfl.kernels.library import CHANNELS, available, takes


class FastConv2d(nn.Conv2d):
    """The same parameters, names and, except for rounding, results as `nn.Conv2d`, which it falls back to."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.compiled(input, weight, bias):
            return convolve(input, weight, bias)
        return super()._conv_forward(input, weight, bias)

    def compiled(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        """Return whether the compiled convolution takes these."""
        parameters = (weight,) if bias is None else (weight, bias)
        return is_compiled_for(self.in_channels) and self.tileable(input) and takes(*parameters)

    def tileable(self, input: Tensor) -> bool:
        """Return whether this is a batch of float32 images on the CPU that can be cut into tiles.

        False for a wrong input, so that torch reports the error. Any number of input channels is possible, padded with
        zeros: weight gradients of single images are computed so.
        """
        batch = input.dim() == 4 and input.shape[1] == self.in_channels and input.numel() > 0
        return batch and takes(input) and suits(self) and not torch.is_autocast_enabled("cpu")


def suits(layer: nn.Conv2d) -> bool:
    """Return whether the layer is 3x3, keeps the image size and has a multiple of `CHANNELS` outputs."""
    return (
        layer.kernel_size == (3, 3)
        and layer.padding in ((1, 1), "same")
        and layer.padding_mode == "zeros"
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.out_channels % CHANNELS == 0
    )


def with_fast_convolutions(model: nn.Module) -> nn.Module:
    """Return the model with every suitable convolution made fast in place; without a compiler, unchanged."""
    if available():
        for layer in model.modules():
            if type(layer) is nn.Conv2d and suits(layer):  # a subclass may do something else
                layer.__class__ = FastConv2d
    return model
