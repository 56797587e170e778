"""An `nn.Sequential` that computes BatchNorm, ReLU and 2x2 max-pooling in one pass over memory while it trains."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isfl.kernels.library import CHANNELS, available, takes
from isfl.kernels.normalise import normalise


class FastSequential(nn.Sequential):
    """The same layers, names and, except for rounding, results as `nn.Sequential`.

    The layers themselves stay as they are; each still works if it is called alone.
    """

    def forward(self, input: Tensor) -> Tensor:
        layers, at = list(self), 0
        while at < len(layers):
            length = _fused(layers[at : at + 3], input)
            if length:
                norm = layers[at]
                assert isinstance(norm, nn.BatchNorm2d)
                input = _normalised(norm, input, pool=length == 3)
            else:
                input = layers[at](input)
            at += max(1, length)
        return input


def _fused(layers: Sequence[nn.Module], input: Tensor) -> int:
    """Return how many of these layers are computed as one: three with pooling, two without, or none."""
    norm = layers[0]
    if type(norm) is not nn.BatchNorm2d or not _trains(norm, input):
        return 0
    kinds = [type(layer) for layer in layers[1:]]
    pooled = {nn.ReLU, nn.MaxPool2d} == set(kinds) and all(map(_halves, layers[1:])) and min(input.shape[2:]) > 1
    length = 3 if pooled else 2 if kinds[:1] == [nn.ReLU] else 0
    return 0 if any(map(touched, layers[:length])) else length


def _trains(norm: nn.BatchNorm2d, input: Tensor) -> bool:
    """Return whether the layer normalises this batch by its own statistics, and the compiled functions take it."""
    if not norm.training or norm.weight is None or norm.bias is None or norm.running_mean is None:
        return False
    assert norm.running_var is not None
    batch = input.dim() == 4 and input.shape[1] == norm.num_features and norm.num_features % CHANNELS == 0
    several = batch and input.numel() > norm.num_features
    fits = several and takes(input, norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return fits and not torch.is_autocast_enabled("cpu")


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


def with_fast_sequences(model: nn.Module) -> nn.Module:
    """Return the model with every `nn.Sequential` made fast in place; without a compiler, unchanged."""
    if available():
        for module in model.modules():
            if type(module) is nn.Sequential and not touched(module):
                module.__class__ = FastSequential
    return model
