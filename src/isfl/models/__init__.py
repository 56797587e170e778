"""Models by name, for inputs of a given shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field
from torch import nn

from isfl.errors import UserError
from isfl.models.mlp import mlp
from isfl.models.small_cnn import small_cnn
from isfl.randomness import Purpose, torch_randomness
from isfl.schema import Part

ModelName = Literal["small-cnn", "mlp"]


class ModelSettings(Part):
    name: ModelName = "small-cnn"
    width: float = Field(1.0, gt=0, description="factor on the number of channels or units")


MODELS: dict[str, Callable[[tuple[int, ...], int, float], nn.Module]] = {"small-cnn": small_cnn, "mlp": mlp}


def build_model(settings: ModelSettings, input_shape: tuple[int, ...], num_classes: int, seed: int) -> nn.Module:
    """The model with initial weights that are a function of the seed."""
    if settings.name == "small-cnn" and (len(input_shape) != 3 or min(input_shape[1:]) < 4):
        raise UserError(f"model.name = 'small-cnn' needs images of at least 4x4, the data has shape {input_shape}")
    with torch_randomness(seed, Purpose.INITIAL_MODEL):
        return MODELS[settings.name](input_shape, num_classes, settings.width)


__all__ = ["MODELS", "ModelSettings", "build_model"]
