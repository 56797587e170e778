"""An `nn.Sequential` that reads memory once for neighbouring layers: BatchNorm, ReLU and 2x2 max-pooling while it
trains, and also the convolution before them while it evaluates without gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isfl.kernels import convolve, few
from isfl.kernels.layer import FastConv2d
from isfl.kernels.library import CHANNELS, as_images, available, takes
from isfl.kernels.normalise import normalise
from isfl.kernels.tiles import Then


class FastSequential(nn.Sequential):
    """The same layers, names and, except for rounding, results as `nn.Sequential`.

    The layers themselves stay as they are; each still works if it is called alone.
    """

    def forward(self, input: Tensor) -> Tensor:
        layers = list(self)
        while layers:
            input, done = _step(layers, input)
            layers = layers[done:]
        return input


def _step(layers: Sequence[nn.Module], input: Tensor) -> tuple[Tensor, int]:
    """Return the result of the first layer, or of the first few, and of how many."""
    first = layers[0]
    if type(first) is nn.BatchNorm2d and first.training and _normalises(first, input):
        then, length = _then(layers[1:], input)
        if then is not Then.NOTHING and not touched(first):
            return _normalised(first, input, then is Then.RELU_AND_POOL), 1 + length
    if type(first) in (nn.Conv2d, FastConv2d) and len(layers) > 1 and not torch.is_grad_enabled():
        norm = layers[1]
        if type(norm) is nn.BatchNorm2d and not norm.training and _foldable(first, norm, input):
            return _folded(first, norm, layers[2:], input)
    return first(input), 1


def _then(layers: Sequence[nn.Module], input: Tensor) -> tuple[Then, int]:
    """Return what these layers do behind a BatchNorm that can be done with it, and how many layers that is."""
    kinds = [type(layer) for layer in layers[:2]]
    pooled = {nn.ReLU, nn.MaxPool2d} == set(kinds) and all(map(_halves, layers[:2])) and min(input.shape[2:]) > 1
    then, length = (
        (Then.RELU_AND_POOL, 2) if pooled else (Then.RELU, 1) if kinds[:1] == [nn.ReLU] else (Then.NOTHING, 0)
    )
    return (Then.NOTHING, 0) if any(map(touched, layers[:length])) else (then, length)


def _halves(layer: nn.Module) -> bool:
    """Return whether this is no pooling, or pooling of cells of 2x2 pixels."""
    if not isinstance(layer, nn.MaxPool2d):
        return True
    cells = all(size in (2, (2, 2)) for size in (layer.kernel_size, layer.stride))
    plain = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))
    return cells and plain and not layer.ceil_mode and not layer.return_indices


def touched(module: nn.Module) -> bool:
    """Return whether the module has hooks or replaced methods."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or not {"forward", "_conv_forward"}.isdisjoint(vars(module))


# ------------------------------------------------------------ training


def _normalises(norm: nn.BatchNorm2d, input: Tensor) -> bool:
    """Return whether the compiled functions take this batch, and the layer has all that they compute with."""
    if norm.weight is None or norm.bias is None or norm.running_mean is None or norm.running_var is None:
        return False
    batch = input.dim() == 4 and input.shape[1] == norm.num_features and norm.num_features % CHANNELS == 0
    several = batch and input.numel() > norm.num_features
    fits = several and takes(input, norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return fits and not torch.is_autocast_enabled("cpu")


def _normalised(norm: nn.BatchNorm2d, input: Tensor, pool: bool) -> Tensor:
    """Return the result and update the running statistics, as `nn.BatchNorm2d` does."""
    result, found = normalise(input, norm.weight, norm.bias, norm.eps, pool)
    assert norm.running_mean is not None and norm.running_var is not None
    factor = norm.momentum
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if factor is None:  # the plain average over all batches
            factor = 1.0 / float(norm.num_batches_tracked)
    with torch.no_grad():
        for running, value in ((norm.running_mean, found.mean), (norm.running_var, found.unbiased)):
            running.copy_(torch.lerp(running.double(), value, factor or 0.0))
    return result


# ------------------------------------------------------------ evaluation


def _foldable(layer: nn.Module, norm: nn.BatchNorm2d, input: Tensor) -> bool:
    """Return whether the norm has fixed statistics of the layer's outputs, and these are float32 on the CPU."""
    if norm.running_mean is None or norm.running_var is None or touched(layer) or touched(norm):
        return False
    assert isinstance(layer, nn.Conv2d)
    fits = takes(input, norm.running_mean, norm.running_var, *layer.parameters(), *norm.parameters())
    return fits and norm.num_features == layer.out_channels and not torch.is_autocast_enabled("cpu")


def _folded(layer: nn.Module, norm: nn.BatchNorm2d, after: Sequence[nn.Module], input: Tensor) -> tuple[Tensor, int]:
    """Return the convolution with the norm folded into it, and with what comes after in the same pass if it can be."""
    assert isinstance(layer, nn.Conv2d) and norm.running_mean is not None and norm.running_var is not None
    scale = torch.rsqrt(norm.running_var.double() + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    bias = -norm.running_mean if layer.bias is None else layer.bias - norm.running_mean
    bias = (bias * scale if norm.bias is None else bias * scale + norm.bias).float()
    weight = (layer.weight * scale.view(-1, 1, 1, 1)).float()
    if isinstance(layer, FastConv2d) and layer.compiled(input, weight, bias):
        then, length = _then(after[:1] if layer.in_channels <= few.MOST else after, input)  # few.c does not pool
        return convolve.forward(as_images(input), weight, bias, then), 2 + length
    return layer._conv_forward(input, weight, bias), 2


def with_fast_sequences(model: nn.Module) -> nn.Module:
    """Return the model with every `nn.Sequential` made fast in place; without a compiler, unchanged."""
    if available():
        for module in model.modules():
            if type(module) is nn.Sequential and not touched(module):
                module.__class__ = FastSequential
    return model
