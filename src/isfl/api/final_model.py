"""The final model of a run, from its configuration and its weights."""

from __future__ import annotations

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from isfl import layout
from isfl.data import load
from isfl.errors import UserError
from isfl.experiment.directory import RunDirectory
from isfl.federation.preparation import prepared
from isfl.models import AnyModel
from isfl.problem.config import Config
from isfl.problem.problem import model_of


def final_model(directory: RunDirectory, config: Config, given: AnyModel | None = None) -> nn.Module:
    """Return the model in evaluation mode; `given` is what the run was given from Python."""
    if not directory.finished:
        raise UserError(
            f"{directory.path}: the run is not finished, it has no final model yet; resume it with isfl.resume"
        )
    if directory.model_is_damaged:
        raise UserError(f"{directory.model}: damaged; isfl resume {directory.path} writes it again")
    # The layers and the memory format of torch itself: a user's tools need not know ours, which are for training.
    plain = config.model_copy(update={"training": config.training.model_copy(update={"convolutions": "torch"})})
    shape = tuple(example_inputs(directory, config).shape[1:])
    model = prepared(model_of(plain, shape, len(directory.class_names), given), plain)
    try:
        model.load_state_dict(load_file(directory.model))
    except (OSError, SafetensorError, RuntimeError) as error:  # cut short, or of other layers
        reason = str(error).splitlines()[0]
        raise UserError(f"{directory.model}: damaged or not the model of this run ({reason}); run it again") from None
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # torch has no type for this call
    return model.eval()


def example_inputs(directory: RunDirectory, config: Config) -> Tensor:
    """Return a batch of two inputs of zeros, with the shape and type that the model takes."""
    described = directory.split
    if "input_dtype" in described:
        try:
            return torch.zeros(2, *described["input_shape"], dtype=getattr(torch, described["input_dtype"]))
        except (KeyError, TypeError, AttributeError, RuntimeError):
            raise UserError(f"{directory.path}: {layout.SPLIT} does not say the inputs' shape and type") from None
    return torch.zeros_like(load(config.data).test.batch(slice(0, 2))[0])  # a run of an earlier version
