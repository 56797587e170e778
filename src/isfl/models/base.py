"""What a model by name offers: a name, a function that builds it, and the smallest images it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class NamedModel:
    """A model that `model.name` can name."""

    name: str
    build: Callable[[tuple[int, ...], int, float], nn.Module]
    """From the shape of an input, the number of classes and the factor on the width. Its docstring is for the docs."""
    smallest_image: int | None = None
    """Pixels of the shorter side; None for a model that takes inputs of any shape."""
