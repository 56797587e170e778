"""`p_j`-IS of the ISFL paper (Zhu et al., IEEE IoT-J 2024, Section V): the first term of its probabilities alone."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from isfl.federation.sampling_rules.base import SamplingRule
from isfl.theory.arrays import Array


class TargetShares(SamplingRule):
    """`p_j`-IS: the target shares, restricted to the classes the client holds.

    With `normalised = false`, every sample gets the weight `p_i`, not divided by the client's own share; `q_i` is then
    proportional to `p^k_i p_i`, which for a balanced target is the local mix.
    """

    names: ClassVar[dict[str, dict[str, Any]]] = {"pj-is": {}, "pj-unnormalised": {"normalised": False}}
    rule: Literal["target"] = "target"
    normalised: bool = Field(True, description="false: weigh samples by p_i alone, so that q_i ~ p^k_i p_i")

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        if self.normalised:
            return target_on_support(counts, target)
        weights = counts * target
        return weights / weights.sum() if weights.sum() > 0 else counts / counts.sum()


def target_on_support(counts: Array, target: Array) -> Array:
    """(C,) the target restricted to the classes held; uniform over those if it wants none of them."""
    held = counts > 0
    wanted = np.where(held, target, 0.0)
    return wanted / wanted.sum() if wanted.sum() > 0 else held / held.sum()
