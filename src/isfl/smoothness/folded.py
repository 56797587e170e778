"""A convolution and the BatchNorm after it as one convolution, which is exact with fixed statistics (ours).

With `s = gamma / sqrt(var + eps)`,

    z = gamma (W x + b - mean) / sqrt(var + eps) + beta = (s W) x + s (b - mean) + beta

and with `g` the gradient at `z`, and sums over the positions of a sample,

    dW = s sum g x^T        db = s sum g        dgamma = sum g (z - beta) / gamma        dbeta = sum g

This reads memory once, where the two layers and their rules read it seven times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from isfl.kernels import FastConv2d, FastSequential
from isfl.kernels.library import as_images, takes
from isfl.kernels.sequence import touched
from isfl.kernels.tiles import channel_sums
from isfl.smoothness.gradients import Gradient
from isfl.smoothness.layers import Gradients, convolution, in_tiles, rule_for
from isfl.smoothness.tiled import tiled

SMALLEST = 0.02
"""The smallest `gamma` relative to 1 and `beta`: below it, `z - beta` has too few correct digits."""


class Folded(nn.Module):
    """The two layers in one. It owns their parameters, so their gradients come from its rule."""

    def __init__(self, layer: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.pair = (layer, norm)
        for prefix, module in (("", layer), ("norm_", norm)):
            for name, parameter in module.named_parameters(recurse=False):
                self.register_parameter(prefix + name, parameter)

    def forward(self, x: Tensor) -> Tensor:
        layer, norm = self.pair
        assert norm.running_mean is not None
        scale = self._scale()
        bias = norm.bias - norm.running_mean * scale
        if layer.bias is not None:
            bias = bias + layer.bias * scale
        return layer._conv_forward(x, layer.weight * scale.view(-1, 1, 1, 1), bias)

    def _scale(self) -> Tensor:
        _, norm = self.pair
        assert norm.running_var is not None
        return norm.weight * torch.rsqrt(norm.running_var + norm.eps)

    @torch.no_grad()
    def gradients(self, x: Tensor, z: Tensor, grad: Tensor) -> Gradients:
        """Return the gradients of each sample. A ReLU may have overwritten `z` since; where it did, `grad` is zero."""
        layer, norm = self.pair
        scale = self._scale()
        if isinstance(layer, FastConv2d) and takes(grad, z, norm.bias):
            sums, products = channel_sums(as_images(grad), as_images(z), norm.bias)
        else:
            sums, products = grad.sum((2, 3)), (z - norm.bias.view(-1, 1, 1)).mul_(grad).sum((2, 3))
        weight: Gradient
        if in_tiles(layer, x):
            weight = tiled(x, grad, scale)
        else:
            weight = convolution(layer, x, grad * scale.view(-1, 1, 1))["weight"]
        return {"weight": weight, "bias": sums * scale, "norm_weight": products / norm.weight, "norm_bias": sums}


@contextmanager
def folded(model: nn.Module) -> Iterator[list[Folded]]:
    """Let the model's Sequentials call one layer for every such pair, until the block ends; yields the layers.

    The original layers stay in place and still work if the model calls them in another way.
    """
    places = Counter(id(child) for module in model.modules() for child in module._modules.values())
    changed: list[nn.Module] = []
    pairs: list[Folded] = []
    try:
        for sequence in (module for module in model.modules() if isinstance(module, nn.Sequential)):
            if type(sequence).forward in (nn.Sequential.forward, FastSequential.forward) and "forward" not in vars(
                sequence
            ):
                steps = list(_steps(list(sequence), places))
                if found := [step for step in steps if isinstance(step, Folded)]:
                    vars(sequence)["forward"] = partial(_through, steps)
                    changed.append(sequence)
                    pairs += found
        yield pairs
    finally:
        for module in changed:
            del vars(module)["forward"]


def _through(steps: Sequence[nn.Module], x: Tensor) -> Tensor:
    for step in steps:
        x = step(x)
    return x


def _steps(layers: Sequence[nn.Module], places: Counter[int]) -> Iterator[nn.Module]:
    """Yield the layers with pairs folded. The layer after a pair must not change `z` where the gradient is not zero."""
    skip = False
    for layer, norm, after in zip(layers, [*layers[1:], None], [*layers[2:], None, None], strict=False):
        if skip:
            skip = False
        elif (
            isinstance(layer, nn.Conv2d)
            and isinstance(norm, nn.BatchNorm2d)
            and after is not None
            and type(after) in (nn.ReLU, nn.MaxPool2d)
            and places[id(layer)] == places[id(norm)] == 1
            and rule_for(layer)
            and rule_for(norm)
            and not any(map(touched, (layer, norm, after)))
            and _conditioned(norm)
        ):
            yield Folded(layer, norm)
            skip = True
        else:
            yield layer


def _conditioned(norm: nn.BatchNorm2d) -> bool:
    """Return whether it is in eval mode, has `gamma` and `beta`, and `gamma` is large enough to divide by."""
    if norm.training or norm.running_mean is None or norm.weight is None or norm.bias is None:
        return False
    gamma, beta = norm.weight.detach(), norm.bias.detach()
    return bool((gamma.abs() >= SMALLEST * beta.abs().clamp(min=1)).all())
