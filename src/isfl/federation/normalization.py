"""BatchNorm statistics in a federation: averaged, kept local, or avoided by GroupNorm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from isfl.federation.values import Weights


def statistic_names(model: nn.Module) -> frozenset[str]:
    """Return the names of the running statistics of all BatchNorm layers in the model's state."""
    return frozenset(
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, _BatchNorm)
        for name, _ in module.named_buffers(recurse=False)
    )


def without(weights: Weights, names: frozenset[str]) -> Weights:
    return {name: value for name, value in weights.items() if name not in names}


def only(weights: Weights, names: frozenset[str]) -> Weights:
    return {name: value for name, value in weights.items() if name in names}


def estimate_statistics(model: nn.Module, inputs: Tensor, batch_size: int = 128) -> None:
    """Set the running statistics of `model` to the plain average over batches of `inputs` (the public set).

    A single sample has no statistics; the model then keeps those it has.
    """
    if len(inputs) < 2:
        return
    layers = _batchnorm_layers(model)
    momenta = [layer.momentum for layer in layers]
    with _modes_restored(model.modules()), torch.no_grad():
        model.eval()
        try:
            for layer in layers:
                layer.train()
                layer.reset_running_stats()
                layer.momentum = None  # cumulative average
            for start in range(0, len(inputs), batch_size):
                batch = inputs[start : start + batch_size]
                if len(batch) > 1:
                    model(batch)
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.momentum = momentum


@contextmanager
def frozen_statistics(model: nn.Module, frozen: bool) -> Iterator[None]:
    """Let BatchNorm layers use their running statistics, for a batch that is too small to have its own."""
    layers = _batchnorm_layers(model) if frozen else []
    with _modes_restored(layers):
        for layer in layers:
            layer.eval()
        yield


@contextmanager
def _modes_restored(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Set each module back to training or evaluation afterwards, as it was, also after an error."""
    modes = [(module, module.training) for module in modules]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _batchnorm_layers(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def with_group_norm(model: nn.Module) -> nn.Module:
    """Return the model with GroupNorm in place of every BatchNorm: up to 32 groups of at least four channels."""
    for name, child in model.named_children():
        if isinstance(child, _BatchNorm):
            channels = child.num_features
            groups = max(g for g in range(1, 33) if channels % g == 0 and (g == 1 or channels // g >= 4))
            setattr(model, name, nn.GroupNorm(groups, channels, eps=child.eps, affine=child.affine))
        else:
            with_group_norm(child)
    return model
