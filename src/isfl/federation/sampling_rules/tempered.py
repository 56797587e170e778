"""Tempered class probabilities (ours): between the local mix and balance, so that rare samples are not repeated to
death.

With a `final_temperature` the way between the two is a schedule. From balance to the local mix over the rounds is the
idea of imbalanced weight decay sampling: Tang, Hu, Shi, Cheung, Jin, Ren, Chu, "Data Resampling for Federated Learning
with Non-IID Labels", FTL workshop at IJCAI 2021. The schedule here is ours: linear in the temperature.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from isfl.federation.sampling_rules.base import Known, SamplingRule
from isfl.theory.arrays import Array


class Tempered(SamplingRule):
    """`q_i` proportional to `(p^k_i)^(1 - temperature)`: 0 is the local mix, 1 uniform over classes."""

    names: ClassVar[dict[str, dict[str, Any]]] = {
        "tempered": {"temperature": 0.75},
        "decaying": {"temperature": 1.0, "final_temperature": 0.0},
    }
    rule: Literal["tempered"] = "tempered"
    temperature: float = Field(0.75, ge=0, le=1, description="how far towards uniform")
    final_temperature: float | None = Field(
        None, ge=0, le=1, description="that of the last round, reached in equal steps; none: the same in all rounds"
    )

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        return tempered(counts, self.temperature)

    def own_probabilities(self, known: Known) -> Array:
        return tempered(known.counts, self.temperature_in(known.round, known.rounds))

    def temperature_in(self, round: int, rounds: int) -> float:
        """Return the temperature of a round; a run of one round has the first."""
        if self.final_temperature is None or rounds == 1:
            return self.temperature
        return self.temperature + (self.final_temperature - self.temperature) * (round - 1) / (rounds - 1)


def tempered(counts: Array, temperature: float) -> Array:
    """(C,) probabilities proportional to `counts ** (1 - temperature)` on the classes held."""
    held = counts > 0
    weights = np.where(held, np.where(held, counts, 1.0) ** (1.0 - temperature), 0.0)
    return np.asarray(weights / weights.sum())
