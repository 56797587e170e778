"""A multi-layer perceptron for inputs of any shape."""

from __future__ import annotations

import math

from torch import nn

from isfl.models.base import NamedModel


def mlp(input_shape: tuple[int, ...], num_classes: int, width: float = 1.0) -> nn.Module:
    """Two hidden layers of 64 units with ReLU."""
    units = max(1, round(64 * width))
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), units),
        nn.ReLU(),
        nn.Linear(units, units),
        nn.ReLU(),
        nn.Linear(units, num_classes),
    )


MLP = NamedModel("mlp", mlp)
