"""FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017. Every local sample once per epoch."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from isfl.federation.sampling_rules.base import Draws, LocalData, SamplingRule
from isfl.sampling import Indices
from isfl.theory.arrays import Array


class Shuffle(SamplingRule):
    """FedAvg: every sample once per epoch, in random order, without replacement."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"fedavg": {}}
    rule: Literal["shuffle"] = "shuffle"

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        return counts / counts.sum()

    def draws(self, local: LocalData) -> Draws:
        def indices(epoch: int) -> Indices:
            return local.stream.epoch(epoch).permutation(len(local.data))[: local.size]

        return Draws(indices, local.probabilities)
