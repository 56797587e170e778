"""How a model is prepared for training: its norms, its convolutions, its layout in memory. All are part of its bits."""

from __future__ import annotations

import copy

import torch
from torch import nn

from isfl.federation.normalization import with_group_norm
from isfl.federation.settings import Settings
from isfl.kernels import with_fast_convolutions


def prepared(model: nn.Module, settings: Settings) -> nn.Module:
    """A copy of the model as every engine trains it; the caller's own stays as it is.

    Convolutions on a CPU are faster with channels last and in our own way; both are part of a result's bits.
    """
    model = copy.deepcopy(model)
    if settings.training.batchnorm == "group":
        model = with_group_norm(model)
    if settings.training.convolutions == "fast":
        model = with_fast_convolutions(model)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
