"""Uniform-IS of the ISFL paper (Zhu et al., IEEE IoT-J 2024, Section V), which its figures also call RW-IS."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from isfl.federation.sampling_rules.base import SamplingRule
from isfl.theory.arrays import Array


class UniformClasses(SamplingRule):
    """Uniform-IS (also RW-IS): all classes the client holds with equal probability."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"uniform-is": {}}
    rule: Literal["uniform"] = "uniform"

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        held = counts > 0
        return held / held.sum()
