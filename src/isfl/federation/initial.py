"""Independent initial models: each client starts the first round from its own random weights."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from isfl.errors import UserError
from isfl.randomness import Purpose, torch_randomness


def initialise(model: nn.Module, seed: int, client: int) -> None:
    """Give every trainable layer of `model` new random weights, a function of the seed and the client."""
    resets = layer_resets(model)
    # Client 0 of this purpose is the server.
    with torch_randomness(seed, Purpose.INITIAL_MODEL, client=client + 1):
        for reset in resets:
            reset()


def layer_resets(model: nn.Module) -> list[Callable[[], object]]:
    """Return `reset_parameters` of every trainable layer; refuse a layer without it. Frozen layers stay as they are."""
    resets: list[Callable[[], object]] = []
    for layer in model.modules():
        own = list(layer.parameters(recurse=False))
        if own and not any(parameter.requires_grad for parameter in own):
            continue
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            resets.append(reset)
        elif own:
            raise UserError(
                f"training.initial_models = 'independent': the layer {type(layer).__name__} has parameters but no "
                "method reset_parameters to draw them anew; add one, or use 'shared'"
            )
    return resets
