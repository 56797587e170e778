"""A random initial model of a client's own, where clients do not start from the server's."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from isfl.errors import UserError
from isfl.randomness import Purpose, torch_randomness


def initialise(model: nn.Module, seed: int, client: int) -> None:
    """Give every layer of `model` new random weights, a function of the seed and the client."""
    resets: list[Callable[[], object]] = []
    for layer in model.modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            resets.append(reset)
        elif any(True for _ in layer.parameters(recurse=False)):
            raise UserError(
                f"training.initial_models = 'independent': the layer {type(layer).__name__} has parameters but no "
                "method reset_parameters to draw them anew; add one, or use 'shared'"
            )
    # Client 0 of this purpose is the server.
    with torch_randomness(seed, Purpose.INITIAL_MODEL, client=client + 1):
        for reset in resets:
            reset()
