"""Loss terms that a scheme adds to cross-entropy. The training loop knows only the interface."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.errors import UserError
from isfl.federation.scheme import FedProx, Moon, Objective
from isfl.federation.values import Weights
from isfl.theory.arrays import Array

LossTerm = Callable[[Tensor], Tensor | float]
"""From a batch of inputs, just passed through the model, to what is added to its loss."""

RAREST = 1e-6
"""Shares below this count as this in the calibration: the logarithm stays finite for classes nobody draws."""


def calibration(probabilities: Array, target: Array) -> Tensor:
    """`log(q_i / p_i)`, added to the logits in training.

    Whatever mix a client draws (`q`), the loss then aims at the target mix (`p`): a class it draws twice as
    often as the target has must win by a factor of two before it counts as won.
    """
    q, p = np.maximum(probabilities, RAREST), np.maximum(target, RAREST)
    return torch.from_numpy(np.log(q / p)).float()


@contextmanager
def loss_term(
    objective: Objective, model: nn.Module, global_model: Weights, previous: Weights | None
) -> Iterator[LossTerm]:
    """The term of this objective for one client's training; hooks it needs are gone afterwards."""
    if isinstance(objective, FedProx):
        yield proximal(model, global_model, objective.mu)
    elif isinstance(objective, Moon):
        with contrastive(model, global_model, previous or global_model, objective) as term:
            yield term
    else:
        yield lambda inputs: 0.0


def proximal(model: nn.Module, global_model: Weights, mu: float) -> LossTerm:
    """FedProx: `mu/2 ||theta - theta_global||^2` over the trainable parameters."""
    # Copied into the parameter's own memory layout: a sum in another order would be other bits.
    pairs = [
        (p, torch.empty_like(p).copy_(global_model[name]).detach())
        for name, p in model.named_parameters()
        if p.requires_grad
    ]

    def term(inputs: Tensor) -> Tensor:
        return 0.5 * mu * torch.stack([((p - anchor) ** 2).sum() for p, anchor in pairs]).sum()

    return term


@contextmanager
def contrastive(model: nn.Module, global_model: Weights, previous: Weights, moon: Moon) -> Iterator[LossTerm]:
    """MOON: `-log( e^(sim(z, z_global)/tau) / (e^(sim(z, z_global)/tau) + e^(sim(z, z_previous)/tau)) )`.

    `z` is the representation before the output layer, or the logits. Before a client has a previous model, the
    global one stands in for it and the term is constant.
    """
    anchors = []
    for weights in (global_model, previous):
        anchor = copy.deepcopy(model)
        anchor.load_state_dict(weights)
        anchors.append(anchor.eval().requires_grad_(False))
    seen = logits if moon.representation == "logits" else representation
    with seen(model) as z, seen(anchors[0]) as z_global, seen(anchors[1]) as z_previous:

        def term(inputs: Tensor) -> Tensor:
            with torch.no_grad():
                for anchor in anchors:
                    anchor(inputs)
            near = F.cosine_similarity(z[0], z_global[0]) / moon.tau
            far = F.cosine_similarity(z[0], z_previous[0]) / moon.tau
            return moon.mu * F.softplus(far - near).mean()

        yield term


@contextmanager
def logits(model: nn.Module) -> Iterator[list[Tensor]]:
    """A one-element list that, after each forward pass, holds the model's output."""
    seen: list[Tensor] = []

    def note(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        seen[:] = [output]

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
