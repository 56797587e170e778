"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys
2020."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from isfl.federation.objectives.base import LocalTraining, LossTerm, Objective
from isfl.federation.values import Weights


class FedProx(Objective):
    """`+ mu/2 ||theta - theta_global||^2`."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"fedprox": {}}
    kind: Literal["fedprox"] = "fedprox"
    mu: float = Field(0.2, ge=0, description="weight of the term")

    @contextmanager
    def term(self, local: LocalTraining) -> Iterator[LossTerm]:
        yield proximal(local.model, local.global_model, self.mu)


def proximal(model: nn.Module, global_model: Weights, mu: float) -> LossTerm:
    """`mu/2 ||theta - theta_global||^2` over the trainable parameters."""
    # Copied into the parameter's own memory layout: a sum in another order would be other bits.
    pairs = [
        (p, torch.empty_like(p).copy_(global_model[name]).detach())
        for name, p in model.named_parameters()
        if p.requires_grad
    ]

    def term(inputs: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        return 0.5 * mu * torch.stack([((p - anchor) ** 2).sum() for p, anchor in pairs]).sum()

    return term
