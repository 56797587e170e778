"""Bias-variance sampling (ours): the probabilities with the smallest expected error of the client's gradient.

    (q - p)' M (q - p) + weight * sum_i q_i^2 v_i / n_i

`theory/bias_variance.py` has the derivation and the solver. The server measures `M` and `v` at the global model on the
public set before each round: as many gradients as the set has samples, however many clients there are. It sends these
C (C + 1) numbers to every client; the client solves with its own counts and sends nothing about them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from isfl.federation.sampling_rules.base import Known, SamplingRule
from isfl.federation.sampling_rules.target import target_on_support
from isfl.theory.arrays import Array
from isfl.theory.bias_variance import bias_variance_probabilities


class BiasVariance(SamplingRule):
    """The smallest `(q - p)' M (q - p) + weight * sum_i q_i^2 v_i / n_i`, from gradients measured at the server."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"bias-variance": {}}
    keeps_counts: ClassVar[bool] = True
    uses_moments: ClassVar[bool] = True
    rule: Literal["bias-variance"] = "bias-variance"
    weight: float = Field(
        1.0,
        ge=0,
        description="of the variance term: 1 for the error of one gradient; more where epochs repeat few samples",
    )

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        """The target shares: without measurements the variance is unknown."""
        return target_on_support(counts, target)

    def own_probabilities(self, known: Known) -> Array:
        if known.moments is None:
            return self.class_probabilities(known.counts, known.target)
        return bias_variance_probabilities(known.target, known.counts, known.moments, weight=self.weight)
