"""Target shares with a cap on how often a local sample is repeated (ours).

A client that makes `T` draws per round by the target sees each of its `n_i` samples of class `i` on average
`s_i = p_i T / n_i` times. The first sights of a sample teach; the hundredth only fits its noise. So let repeats
saturate at `r`:

    s_i / (1 + s_i / r),    hence    q_i ~ p_i n_i / (n_i + p_i T / r).

The sum is harmonic: about `s_i` where `s_i` is far below `r`, never above `r`. Scaling `q` to sum to one then raises
all repeats by the same factor: a client with 480, 480 and eight times 5 samples and five epochs uses a rare sample 36
times per round for `r` = 10, where the target alone would use it 100 times. A class with many samples keeps its target
share, a class with few gets less, and how much less follows from the length of training. Few draws leave the target;
many lead to the local mix. With `lambda = p_i T / r` it is the rule of `shrunk.py`, whose `lambda` is a constant.

Samples are drawn evenly (`isfl.sampling.draw_evenly`): repeats of a sample differ by one at most. A client whose mix is
the target sees each sample once per epoch, as in FedAvg.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from isfl.federation.sampling_rules.base import Draws, Known, LocalData, SamplingRule
from isfl.federation.sampling_rules.target import target_on_support
from isfl.sampling import draw_evenly
from isfl.theory.arrays import Array


class CappedRepeats(SamplingRule):
    """`q_i` proportional to `p_i n_i / (n_i + p_i T / repeats)` for `T` draws, which are spread evenly over samples."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"capped": {}}
    keeps_counts: ClassVar[bool] = True
    rule: Literal["capped"] = "capped"
    repeats: float = Field(
        10.0,
        gt=0,
        description="r: where repeats of a local sample per round saturate, before q is scaled to sum to one",
    )
    evenly: bool = Field(True, description="repeats inside a class differ by one at most; false: independent draws")

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        """The probabilities of a round that passes through the data once."""
        return self._capped(counts, target, passes=1.0)

    def own_probabilities(self, known: Known) -> Array:
        return self._capped(known.counts, known.target, known.passes)

    def _capped(self, counts: Array, target: Array, passes: float) -> Array:
        wanted = target_on_support(counts, target)
        repeated = wanted * (counts.sum() * passes) / np.where(counts > 0, counts, 1.0)
        weights = wanted / (1 + repeated / self.repeats)
        return weights / weights.sum()

    def draws(self, local: LocalData) -> Draws:
        if not self.evenly:
            return super().draws(local)
        epochs = draw_evenly(
            local.data.labels.numpy(), local.probabilities, local.size, local.epochs, local.stream.epoch(0)
        )
        return Draws(epochs.__getitem__, local.probabilities)
