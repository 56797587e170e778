"""Prepare a model for training: its norms, its convolutions, its memory layout. All are part of a result's bits."""

from __future__ import annotations

import copy
from typing import assert_never

import torch
from torch import nn

from isfl.federation.normalization import with_group_norm
from isfl.federation.settings import Settings
from isfl.kernels import suits, why_unavailable, with_fast_convolutions, with_fast_sequences


def prepared(model: nn.Module, settings: Settings) -> nn.Module:
    """Return a copy of the model as every engine trains it; the caller's model is not changed.

    On a CPU, convolutions are faster with channels last and compiled; both are part of a result's bits.
    """
    model = copy.deepcopy(model)
    match settings.training.batchnorm:
        case "group":
            model = with_group_norm(model)
        case "average" | "local":
            pass
        case _:
            assert_never(settings.training.batchnorm)
    match settings.training.convolutions:
        case "fast":
            model = with_fast_sequences(with_fast_convolutions(model))
        case "torch":
            pass
        case _:
            assert_never(settings.training.convolutions)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def why_slow_convolutions(model: nn.Module, settings: Settings) -> str | None:
    """Return why the model's 3x3 convolutions are left to torch, in one line; None if they are compiled.

    It is None also if the model has no convolution that could be compiled.
    """
    if not has_compilable_convolutions(model):
        return None
    match settings.training.convolutions:
        case "torch":
            return "training.convolutions = 'torch'"
        case "fast":
            return "they are for CPUs, and this machine has CUDA" if torch.cuda.is_available() else why_unavailable()
        case _:
            assert_never(settings.training.convolutions)


def has_compilable_convolutions(model: nn.Module) -> bool:
    """Return whether the model has 3x3 convolutions of the kind that can be compiled."""
    return any(isinstance(layer, nn.Conv2d) and suits(layer) for layer in model.modules())
