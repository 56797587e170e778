"""What an aggregation offers: its settings, the clients' weights, how values are combined, and a server step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, assert_never

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isfl.federation.values import ServerMemory, Weights
from isfl.schema import Part
from isfl.theory.arrays import Array


class Aggregation(Part):
    """The base of all aggregations."""

    names: ClassVar[dict[str, dict[str, Any]]] = {}
    """Schemes of the literature that consist of this aggregation: name -> its settings there."""

    rule: str

    def client_weights(self, sizes: Sequence[int]) -> Array:
        """(K,) `pi_k`, summing to 1: every client counts once."""
        return np.full(len(sizes), 1.0 / len(sizes))

    @abstractmethod
    def combine(self, values: Sequence[Tensor], weights: Array) -> Tensor:
        """One tensor from the clients' tensors of one name, in double precision."""

    def step(
        self, current: Weights, combined: Weights, memory: ServerMemory, parameters: frozenset[str]
    ) -> tuple[Weights, ServerMemory]:
        """Where the server moves the named parameters instead of taking the combined ones; the default takes them."""
        return {}, memory


class WeightedMean(Aggregation):
    """The base of those that average."""

    weights: Literal["size", "client"] = Field("size", description="weigh clients by their samples, or equally")

    def client_weights(self, sizes: Sequence[int]) -> Array:
        match self.weights:
            case "size":
                raw = np.asarray(sizes, dtype=np.float64)
            case "client":
                raw = np.ones(len(sizes))
            case _:
                assert_never(self.weights)
        return raw / raw.sum()

    def combine(self, values: Sequence[Tensor], weights: Array) -> Tensor:
        """`sum_k pi_k theta^k`."""
        total = torch.zeros_like(values[0], dtype=torch.float64)
        for value, weight in zip(values, weights, strict=True):
            total += value.double() * float(weight)
        return total
