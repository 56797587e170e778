"""FedLC: Zhang, Li, Li, Xu, Wu, Ding, Wu, "Federated Learning with Label Distribution Skew via Logits Calibration",
ICML 2022."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isfl.federation.objectives.base import LocalTraining, Objective
from isfl.theory.arrays import Array

FEWEST = 1e-8
"""A class the client lacks counts as this many samples: a margin of 100 tau takes it out of the softmax."""


class FedLC(Objective):
    """Cross-entropy of `logits_i - tau n_i^(-1/4)`: rare local classes get a larger margin."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"fedlc": {}}
    kind: Literal["fedlc"] = "fedlc"
    tau: float = Field(1.0, ge=0, description="factor on the margins")

    def logit_shift(self, local: LocalTraining) -> Tensor | None:
        shift, prior = margins(local.counts, self.tau), super().logit_shift(local)
        return shift if prior is None else shift + prior


def margins(counts: Array, tau: float) -> Tensor:
    """(C,) `-tau n_i^(-1/4)`, with `n_i` the local samples of class `i`."""
    return torch.from_numpy(-tau * np.maximum(counts, FEWEST) ** -0.25).float()
