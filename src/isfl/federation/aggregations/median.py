"""Coordinate-wise median: Yin, Chen, Kannan, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from isfl.federation.aggregations.base import Aggregation
from isfl.theory.arrays import Array


class Median(Aggregation):
    """Coordinate-wise median of the clients' models, each counted once."""

    rule: Literal["median"] = "median"

    def combine(self, values: Sequence[Tensor], weights: Array) -> Tensor:
        """The mean of the two middle values, where torch.median would take the lower one."""
        ordered = torch.stack(list(values)).double().sort(dim=0).values
        return (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2
