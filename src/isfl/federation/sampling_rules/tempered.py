"""Tempered class probabilities (ours): between the local mix and balance, so that rare samples are not repeated to
death."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from isfl.federation.sampling_rules.base import SamplingRule
from isfl.theory.arrays import Array


class Tempered(SamplingRule):
    """`q_i` proportional to `(p^k_i)^(1 - temperature)`: 0 is the local mix, 1 uniform over classes."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"tempered": {"temperature": 0.75}}
    rule: Literal["tempered"] = "tempered"
    temperature: float = Field(0.75, ge=0, le=1, description="how far towards uniform")

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        held = counts > 0
        weights = np.where(held, np.where(held, counts, 1.0) ** (1.0 - self.temperature), 0.0)
        return np.asarray(weights / weights.sum())
