"""FedAdam: Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, "Adaptive Federated Optimization", ICLR
2021."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from isfl.federation.aggregations.base import WeightedMean
from isfl.federation.values import ServerMemory, Weights


class ServerAdam(WeightedMean):
    """FedAdam: the mean update is the gradient of an Adam step without bias correction."""

    rule: Literal["adam"] = "adam"
    lr: float = Field(0.01, gt=0, le=1000, description="learning rate of the server")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean of updates")
    beta2: float = Field(0.99, ge=0, lt=1, description="decay of the mean of squared updates")
    tau: float = Field(1e-3, gt=0, description="added to the root: the smaller, the more adaptive")

    def step(
        self, current: Weights, combined: Weights, memory: ServerMemory, parameters: frozenset[str]
    ) -> tuple[Weights, ServerMemory]:
        """`m = beta1 m + (1 - beta1) delta`, `v = beta2 v + (1 - beta2) delta^2`, `theta + lr m / (sqrt(v) + tau)`."""
        moved: Weights = {}
        first: Weights = {}
        second: Weights = {}
        for name in sorted(parameters):
            delta = combined[name] - current[name]
            before = memory.first.get(name, torch.zeros_like(delta))
            square = memory.second.get(name, torch.full_like(delta, self.tau**2))
            first[name] = self.beta1 * before + (1 - self.beta1) * delta
            second[name] = self.beta2 * square + (1 - self.beta2) * delta**2
            moved[name] = current[name] + self.lr * first[name] / (second[name].sqrt() + self.tau)
        return moved, ServerMemory(first, second)
