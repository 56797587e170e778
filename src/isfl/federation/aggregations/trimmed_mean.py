"""Coordinate-wise trimmed mean: Yin, Chen, Kannan, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from isfl.federation.aggregations.base import Aggregation
from isfl.theory.arrays import Array


class TrimmedMean(Aggregation):
    """Coordinate-wise mean without the `trim` share of smallest and of largest values."""

    rule: Literal["trimmed-mean"] = "trimmed-mean"
    trim: float = Field(0.1, ge=0, lt=0.5, description="share left out on either side")

    def combine(self, values: Sequence[Tensor], weights: Array) -> Tensor:
        cut = min(int(self.trim * len(values)), (len(values) - 1) // 2)
        ordered = torch.stack(list(values)).double().sort(dim=0).values
        return ordered[cut : len(values) - cut].mean(dim=0)
