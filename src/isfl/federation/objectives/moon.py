"""MOON: Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Literal, assert_never

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from isfl.errors import UserError
from isfl.federation.objectives.base import LocalTraining, LossTerm, Objective, frozen_copy
from isfl.federation.values import Weights


class Moon(Objective):
    """A contrastive term: representations close to the global model's, far from the previous local model's."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"moon": {}}
    keeps_local_model: ClassVar[bool] = True
    kind: Literal["moon"] = "moon"
    mu: float = Field(1.0, ge=0, description="weight of the term")
    tau: float = Field(0.5, gt=0, description="temperature of the contrast")
    representation: Literal["features", "logits"] = Field(
        "features",
        description="what is compared: the input of the output layer, as in the MOON paper, or its output (ISFL's "
        "authors' code for ResNet9)",
    )

    @contextmanager
    def term(self, local: LocalTraining) -> Iterator[LossTerm]:
        previous = local.previous or local.global_model
        with contrastive(local.model, local.global_model, previous, self) as term:
            yield term


@contextmanager
def contrastive(model: nn.Module, global_model: Weights, previous: Weights, moon: Moon) -> Iterator[LossTerm]:
    """`-log( e^(sim(z, z_global)/tau) / (e^(sim(z, z_global)/tau) + e^(sim(z, z_previous)/tau)) )`.

    `z` is the representation before the output layer, or the logits. Before a client has a previous model, the
    global one stands in for it and the term is constant.
    """
    seen = _seen(moon)
    near_model, far_model = frozen_copy(model, global_model), frozen_copy(model, previous)
    with seen(model) as z, seen(near_model) as z_global, seen(far_model) as z_previous:

        def term(inputs: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
            with torch.no_grad():
                near_model(inputs)
                far_model(inputs)
            near = F.cosine_similarity(z[0], z_global[0]) / moon.tau
            far = F.cosine_similarity(z[0], z_previous[0]) / moon.tau
            return moon.mu * F.softplus(far - near).mean()

        yield term


def _seen(moon: Moon) -> Callable[[nn.Module], AbstractContextManager[list[Tensor]]]:
    match moon.representation:
        case "logits":
            return output
        case "features":
            return representation
        case _:
            assert_never(moon.representation)


@contextmanager
def output(model: nn.Module) -> Iterator[list[Tensor]]:
    """A one-element list that, after each forward pass, holds the model's output."""
    seen: list[Tensor] = []

    def note(module: nn.Module, args: tuple[Tensor, ...], result: Tensor) -> None:
        seen[:] = [result]

    handle = model.register_forward_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


@contextmanager
def representation(model: nn.Module) -> Iterator[list[Tensor]]:
    """A one-element list that, after each forward pass, holds the (flattened) input of the output layer.

    The output layer is the Linear that is called last, wherever in the model it was defined.
    """
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError("objective.kind = 'moon' needs a model whose output layer is a torch.nn.Linear; it has none")
    seen: list[Tensor] = []

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen[:] = [args[0].flatten(1)]

    handles = [layer.register_forward_pre_hook(note) for layer in linear]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
