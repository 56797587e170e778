"""Per-sample gradients of one layer, from what went in and the gradient of what came out.

In eval mode the samples of a batch do not influence each other, so the gradient of a summed loss with
respect to a layer's output holds, row by row, what each sample contributes. A rule turns the layer's input
and that gradient into one gradient per sample and parameter. Each rule is an identity of linear algebra
and is tested against one backward pass a sample.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Gradients = dict[str, Tensor]
"""Parameter name within the layer -> (B, *parameter shape)."""
Rule = Callable[[nn.Module, Tensor, Tensor], Gradients]


def linear(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """`dW = sum_t g_t x_t^T` over all positions `t` between batch and feature dimensions."""
    rows, grads = x.flatten(1, -2) if x.dim() > 2 else x[:, None], grad.flatten(1, -2) if x.dim() > 2 else grad[:, None]
    return {"weight": torch.einsum("bto,bti->boi", grads, rows), "bias": grads.sum(1)}


def convolution(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """`dW = sum over positions of g (x) patch`: a batched matrix product with the unfolded input."""
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    kernel, stride, padding, dilation = layer.kernel_size, layer.stride, _padding(layer), layer.dilation
    if isinstance(layer, nn.Conv1d):
        x, grad = x.unsqueeze(2), grad.unsqueeze(2)
        kernel, stride, padding, dilation = (1, *kernel), (1, *stride), (0, *padding), (1, *dilation)
    patches = F.unfold(x, kernel, dilation=dilation, padding=padding, stride=stride)
    batch, groups = x.shape[0], layer.groups
    patches = patches.reshape(batch * groups, -1, patches.shape[-1])
    grads = grad.reshape(batch * groups, layer.out_channels // groups, -1)
    weight = torch.bmm(grads, patches.transpose(1, 2)).reshape(batch, *layer.weight.shape)
    return {"weight": weight, "bias": grad.flatten(2).sum(2)}


def _padding(layer: nn.Conv1d | nn.Conv2d) -> tuple[int, ...]:
    if layer.padding == "valid":
        return (0,) * len(layer.kernel_size)
    if layer.padding == "same":
        return tuple(d * (k - 1) // 2 for k, d in zip(layer.kernel_size, layer.dilation, strict=True))
    assert isinstance(layer.padding, tuple)
    return layer.padding


def batch_norm(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """With running statistics, BatchNorm is a fixed affine map per channel."""
    assert isinstance(layer, nn.modules.batchnorm._BatchNorm)
    assert layer.running_mean is not None and layer.running_var is not None
    shape = (1, -1, *([1] * (x.dim() - 2)))
    normal = (x - layer.running_mean.view(shape)) * torch.rsqrt(layer.running_var.view(shape) + layer.eps)
    return _per_channel(normal, grad)


def group_norm(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    assert isinstance(layer, nn.GroupNorm)
    return _per_channel(F.group_norm(x, layer.num_groups, eps=layer.eps), grad)


def _per_channel(normal: Tensor, grad: Tensor) -> Gradients:
    """Scale and shift per channel (dimension 1): sum over all positions."""
    product, grad = (normal * grad).flatten(2) if grad.dim() > 2 else (normal * grad)[..., None], grad
    return {"weight": product.sum(2), "bias": grad.flatten(2).sum(2) if grad.dim() > 2 else grad}


def layer_norm(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """Scale and shift per element of the normalised shape: sum over the positions before it."""
    assert isinstance(layer, nn.LayerNorm)
    normal = F.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    between = tuple(range(1, x.dim() - len(layer.normalized_shape)))

    def total(t: Tensor) -> Tensor:
        return t.sum(dim=between) if between else t

    return {"weight": total(normal * grad), "bias": total(grad)}


def embedding(layer: nn.Module, x: Tensor, grad: Tensor) -> Gradients:
    """Every looked-up row receives the gradient of its positions."""
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
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.BatchNorm3d: batch_norm,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
}


def rule_for(layer: nn.Module) -> Rule | None:
    """The rule for a layer, or None where only one backward pass a sample gives the right number.

    Subclasses count as unknown: what they changed cannot be seen from here.
    """
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and (layer.padding_mode != "zeros" or _lopsided(layer)):
        return None
    if isinstance(layer, nn.Embedding) and (layer.scale_grad_by_freq or layer.max_norm is not None or layer.sparse):
        return None
    return RULES.get(type(layer))


def _lopsided(layer: nn.Conv1d | nn.Conv2d) -> bool:
    """`same` padding with an even reach pads one side more than the other."""
    reach = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
    return layer.padding == "same" and any(r % 2 for r in reach)
