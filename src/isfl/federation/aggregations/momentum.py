"""FedAvgM: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from isfl.federation.aggregations.base import WeightedMean
from isfl.federation.values import ServerMemory, Weights


class ServerMomentum(WeightedMean):
    """FedAvgM: the mean update goes through a momentum buffer."""

    rule: Literal["momentum"] = "momentum"
    lr: float = Field(1.0, gt=0, le=1000, description="learning rate of the server")
    momentum: float = Field(0.9, ge=0, lt=1, description="share of the last step that is kept")

    def step(
        self, current: Weights, combined: Weights, memory: ServerMemory, parameters: frozenset[str]
    ) -> tuple[Weights, ServerMemory]:
        """`v = momentum v + delta`, `theta + lr v`, with `delta` the mean update."""
        moved: Weights = {}
        first: Weights = {}
        for name in sorted(parameters):
            delta = combined[name] - current[name]
            first[name] = self.momentum * memory.first.get(name, torch.zeros_like(delta)) + delta
            moved[name] = current[name] + self.lr * first[name]
        return moved, ServerMemory(first, {})
