"""What an aggregation offers: its settings, a look at whole updates, the clients' weights, how values are combined, and
a server step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, assert_never

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isfl.federation.interface import Server
from isfl.federation.values import ClientUpdate, ServerMemory, Weights
from isfl.schema import Part
from isfl.theory.arrays import Array
from isfl.theory.lies import capped


@dataclass(frozen=True)
class Screened:
    """The updates that an aggregation combines, and what finding them took."""

    updates: Sequence[ClientUpdate]
    """At least one, ordered by client; the models may differ from those that were sent."""
    left_out: Mapping[int, str] = field(default_factory=dict)
    """Why the updates of other clients are not combined."""
    forward_passes: int = 0
    """Samples of the public set that went through a model."""


class Aggregation(Part):
    """The base of all aggregations."""

    names: ClassVar[dict[str, dict[str, Any]]] = {}
    """Schemes of the literature that consist of this aggregation: name -> its settings there."""

    rule: str

    def screen(self, current: Weights, updates: Sequence[ClientUpdate], server: Server) -> Screened:
        """Look at whole updates before they are combined: leave some out, or change them; the default takes all.

        `current` is the global model that the clients started from. `server` evaluates models on the public set.
        """
        return Screened(updates)

    @property
    def screens(self) -> bool:
        """Whether single updates decide what is combined."""
        return type(self).screen is not Aggregation.screen

    def client_weights(self, sizes: Sequence[int]) -> Array:
        """(K,) `pi_k`, summing to 1: every client counts once."""
        return np.full(len(sizes), 1.0 / len(sizes))

    def combined(self, updates: Sequence[ClientUpdate]) -> Weights:
        """The values of all names from the clients' models: combined, or for counters the largest."""
        weights = self.client_weights([update.num_samples for update in updates])
        result: Weights = {}
        for name in updates[0].model:
            values = [update.model[name] for update in updates]
            if values[0].is_floating_point():
                result[name] = self.combine(values, weights).to(values[0].dtype)
            else:
                result[name] = torch.stack(values).amax(dim=0)  # counters, such as BatchNorm's number of batches
        return result

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
    cap: float | None = Field(
        None,
        ge=1,
        description="a client weighs at most as much as this many clients of the median size; none: no limit",
    )

    def client_weights(self, sizes: Sequence[int]) -> Array:
        match self.weights:
            case "size":
                raw = np.asarray(sizes, dtype=np.float64)
            case "client":
                raw = np.ones(len(sizes))
            case _:
                assert_never(self.weights)
        raw = capped(raw, self.cap)
        return raw / raw.sum()

    def combine(self, values: Sequence[Tensor], weights: Array) -> Tensor:
        """`sum_k pi_k theta^k`."""
        total = torch.zeros_like(values[0], dtype=torch.float64)
        for value, weight in zip(values, weights, strict=True):
            total += value.double() * float(weight)
        return total
