"""FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017."""

from __future__ import annotations

from typing import Literal

from isfl.federation.aggregations.base import WeightedMean


class Mean(WeightedMean):
    """FedAvg's weighted mean of the clients' models."""

    rule: Literal["mean"] = "mean"
