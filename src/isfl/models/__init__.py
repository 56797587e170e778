"""Models by name, for inputs of a given shape.

To add a model, write a file with a function that builds it and a `NamedModel`, and add the file's name to `FILES`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from pydantic import Field
from torch import nn

from isfl.data.own import PYTHON, call, resolve
from isfl.errors import UserError
from isfl.models.base import NamedModel
from isfl.randomness import Purpose, torch_randomness
from isfl.schema import Part, entries_in

FILES = (
    "small_cnn",
    "mlp",
    "resnet",
)
MODELS = {model.name: model for model in entries_in(__name__, FILES, NamedModel)}


class ModelSettings(Part):
    """The model that server and clients train."""

    name: str = Field(
        "small-cnn",
        description="a model by name, or `module:Class` (or function), called with the shape of an input and the "
        "number of classes, that returns a torch.nn.Module",
    )
    width: float = Field(
        1.0, gt=0, le=100, description="factor on the number of channels or units of the models by name"
    )


AnyModel = nn.Module | Callable[[tuple[int, ...], int], nn.Module]
"""A model, or a class or function that builds one from the shape of an input and the number of classes."""


def build_model(
    settings: ModelSettings,
    input_shape: tuple[int, ...],
    num_classes: int,
    seed: int,
    given: AnyModel | None = None,
) -> nn.Module:
    """Return the model, with initial weights that are a function of the seed (or those of the module given)."""
    key = f"model.name = {settings.name!r}"
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    if given is None and settings.name == PYTHON:
        raise UserError(
            f"{key}: the model was given from Python; give it again, with isfl.resume(DIRECTORY, model=...)"
        )
    if given is not None or ":" in settings.name:
        factory = resolve(settings.name, "model.name") if given is None else given
        with torch_randomness(seed, Purpose.INITIAL_MODEL):
            model = call(factory, key, input_shape, num_classes)
        if not isinstance(model, nn.Module):
            raise UserError(f"{key}: it returned a {type(model).__name__}; it should return a torch.nn.Module")
        return model
    if settings.name not in MODELS:
        raise UserError(f"model.name is {settings.name!r}; choose one of {', '.join(MODELS)}, or module:Class")
    known = MODELS[settings.name]
    least = known.smallest_image
    if least is not None and (len(input_shape) != 3 or min(input_shape[1:]) < least):
        raise UserError(f"{key} needs images of at least {least}x{least}, the data has shape {input_shape}")
    with torch_randomness(seed, Purpose.INITIAL_MODEL):
        return known.build(input_shape, num_classes, settings.width)


def check_output(model: nn.Module, inputs: torch.Tensor, num_classes: int, name: str) -> None:
    """Refuse a model that does not return one row of logits per sample, before the first round."""
    model.eval()
    with torch.no_grad():
        logits = call(model, f"model.name = {name!r}", inputs)
    if not isinstance(logits, torch.Tensor) or logits.shape != (len(inputs), num_classes):
        found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise UserError(f"model.name = {name!r}: returns {found} for {len(inputs)} samples and {num_classes} classes")


__all__ = ["MODELS", "AnyModel", "ModelSettings", "NamedModel", "build_model", "check_output"]
