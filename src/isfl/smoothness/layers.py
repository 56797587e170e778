"""Per-sample gradients of one layer, from its input and the gradient at its output.

In eval mode the samples of a batch do not influence each other, so row `b` of the gradient of the summed loss at a
layer's output is the gradient of sample `b`. A rule turns the layer's input and that gradient into one gradient per
sample and parameter, or into its factors if the gradient is large. Each rule is the chain rule for its layer, and is
tested against one backward pass per sample.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.kernels import FastConv2d
from isfl.smoothness.gradients import Gradient
from isfl.smoothness.outer import Outer, pieces, slim
from isfl.smoothness.tiled import tiled

Gradients = dict[str, Gradient]
"""Parameter name within the layer -> gradients of shape (B, *parameter shape), or their factors."""
Rule = Callable[[nn.Module, Tensor, Tensor], Gradients]


def linear(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """Return `dW = sum_t g_t x_t^T` over all positions `t` between batch and feature dimensions."""
    rows = x.flatten(1, -2) if x.dim() > 2 else x[:, None]
    grads = grad.flatten(1, -2) if grad.dim() > 2 else grad[:, None]
    return {"weight": Outer(((grads[:, None], rows[:, None]),), 1, lambda g: g.squeeze(1)), "bias": grads.sum(1)}


def convolution(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """Return `dW = sum over positions of g (x) patch`. The patches are an overlapping view of the padded input.

    Channels come last: then a row of a patch is contiguous in memory, and patches are copied at full speed.
    """
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    kernel, stride, padding, dilation = layer.kernel_size, layer.stride, _padding(layer), layer.dilation
    if isinstance(layer, nn.Conv1d):
        x, grad = x.unsqueeze(2), grad.unsqueeze(2)
        kernel, stride, padding, dilation = (1, *kernel), (1, *stride), (0, *padding), (1, *dilation)
    groups, inner, outer = layer.groups, x.shape[1] // layer.groups, grad.shape[1] // layer.groups
    image = _padded(x.permute(0, 2, 3, 1), padding[0], padding[1])
    sample, row, column, channel = image.stride()
    steps = (row * stride[0], column * stride[1], row * dilation[0], column * dilation[1])
    patches = image.as_strided(
        (len(x), groups, *grad.shape[2:], *kernel, inner),
        (sample, inner * channel, *steps, channel),
        image.storage_offset(),
    )
    grads = grad.permute(0, 2, 3, 1).reshape(len(x), *grad.shape[2:], groups, outer).permute(0, 3, 1, 2, 4)
    shape = layer.weight.shape[2:]

    def fold(gradient: Tensor) -> Tensor:
        """Reorder (B, groups, O, *kernel, I) to (B, groups * O, I, *kernel)."""
        return gradient.permute(0, 1, 2, 5, 3, 4).flatten(1, 2).reshape(len(x), groups * outer, inner, *shape)

    return {"weight": Outer(((grads, patches),), 2, fold), "bias": _total(grad)}


def fast_convolution(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """Return the same from tiles, unless that is impossible or small images make the factors cheaper."""
    return {"weight": tiled(x, grad), "bias": _total(grad)} if in_tiles(layer, x) else convolution(layer, x, grad)


def in_tiles(layer: nn.Module, x: Tensor) -> bool:
    """Return whether the weight gradients of this call are computed from tiles."""
    if not isinstance(layer, FastConv2d) or not layer.tileable(x):
        return False
    return not slim(x[0, 0].numel(), layer.out_channels, 9 * layer.in_channels)


def _padded(image: Tensor, vertical: int, horizontal: int) -> Tensor:
    """Return (B, H, W, C) with a border of zeros."""
    if not vertical and not horizontal:
        return image
    batch, height, width, channels = image.shape
    padded = image.new_empty(batch, height + 2 * vertical, width + 2 * horizontal, channels)
    for frame in (padded[:, :vertical], padded[:, vertical + height :]):
        frame.zero_()
    for frame in (padded[:, :, :horizontal], padded[:, :, horizontal + width :]):
        frame.zero_()
    padded[:, vertical : vertical + height, horizontal : horizontal + width] = image
    return padded


def _padding(layer: nn.Conv1d | nn.Conv2d) -> tuple[int, ...]:
    if layer.padding == "valid":
        return (0,) * len(layer.kernel_size)
    if layer.padding == "same":
        return tuple(d * (k - 1) // 2 for k, d in zip(layer.kernel_size, layer.dilation, strict=True))
    assert isinstance(layer.padding, tuple)
    return layer.padding


def batch_norm(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """Return the gradients of BatchNorm, which is a fixed affine map per channel with running statistics."""
    assert isinstance(layer, nn.modules.batchnorm._BatchNorm)
    assert layer.running_mean is not None and layer.running_var is not None
    mean = layer.running_mean.view(-1, *([1] * (x.dim() - 2)))
    products = [_total((x[some] - mean).mul_(grad[some])) for some in pieces(len(x), x[0].numel() * x.element_size())]
    return {"weight": torch.cat(products) * torch.rsqrt(layer.running_var + layer.eps), "bias": _total(grad)}


def group_norm(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """Return the gradients of scale and shift per channel."""
    assert isinstance(layer, nn.GroupNorm)
    return {"weight": _total(F.group_norm(x, layer.num_groups, eps=layer.eps).mul_(grad)), "bias": _total(grad)}


def _total(values: Tensor) -> Tensor:
    """Return the sum over all positions, (B, C)."""
    return values.sum(tuple(range(2, values.dim()))) if values.dim() > 2 else values


def layer_norm(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """Return the gradients of scale and shift per element of the normalised shape, summed over the positions."""
    assert isinstance(layer, nn.LayerNorm)
    normal = F.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    between = tuple(range(1, x.dim() - len(layer.normalized_shape)))

    def total(t: Tensor) -> Tensor:
        return t.sum(dim=between) if between else t

    return {"weight": total(normal * grad), "bias": total(grad)}


def embedding(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """Return the gradient of the table: each row gets the sum over the positions that looked it up."""
    assert isinstance(layer, nn.Embedding)
    tokens, grads = x.reshape(x.shape[0], -1), grad.reshape(x.shape[0], -1, layer.embedding_dim)
    if layer.padding_idx is not None:
        grads = grads * (tokens != layer.padding_idx)[..., None]
    weight = grads.new_zeros(x.shape[0], *layer.weight.shape)
    weight.scatter_add_(1, tokens[..., None].expand_as(grads), grads)
    return {"weight": weight}


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    FastConv2d: fast_convolution,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.BatchNorm3d: batch_norm,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
}


def rule_for(layer: nn.Module) -> Rule | None:
    """Return the rule for a layer, or None if only one backward pass per sample is right.

    A subclass has no rule: it may compute something else.
    """
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and (layer.padding_mode != "zeros" or _lopsided(layer)):
        return None
    if isinstance(layer, nn.Embedding) and (layer.scale_grad_by_freq or layer.max_norm is not None or layer.sparse):
        return None
    return RULES.get(type(layer))


def _lopsided(layer: nn.Conv1d | nn.Conv2d) -> bool:
    """Return whether `same` padding pads one side more than the other."""
    reach = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
    return layer.padding == "same" and any(r % 2 for r in reach)
