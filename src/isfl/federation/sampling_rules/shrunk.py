"""Target shares, discounted by how reliable the local samples of a class are (ours).

The mean gradient of `n_i` samples misses the true one of its class by a variance `v / n_i`. Let a client's error be
`m sum_i (q_i - p_i)^2 + v sum_i q_i^2 / n_i`: the squared distance from the target, plus the variance of what it
averages, with the same `m` and `v` for every class. Without the constraint `sum_i q_i = 1` the minimum is

    q_i = p_i n_i / (n_i + lambda),    lambda = v / m,

the target times the reliability `n / (n + lambda)` of a mean of `n` samples, which is also the weight that credibility
theory and empirical Bayes give to such a mean. Scaled to sum to one, these are the probabilities. `lambda` counts
samples: a class with `lambda` local samples keeps half of its target share before scaling. `bias_variance.py` measures
what is assumed equal here.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from isfl.federation.sampling_rules.base import SamplingRule
from isfl.federation.sampling_rules.target import target_on_support
from isfl.theory.arrays import Array


class ShrunkTarget(SamplingRule):
    """`q_i` proportional to `p_i n_i / (n_i + prior_samples)`: 0 is the target, a large number the mix `p_i p^k_i`."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"shrunk": {}}
    keeps_counts: ClassVar[bool] = True
    rule: Literal["shrunk"] = "shrunk"
    prior_samples: float = Field(
        50.0, ge=0, description="lambda: a class with this many local samples keeps half of its target share"
    )

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        wanted = target_on_support(counts, target)
        if self.prior_samples == 0:
            return wanted
        weights = wanted * (counts / (counts + self.prior_samples))
        return weights / weights.sum()
