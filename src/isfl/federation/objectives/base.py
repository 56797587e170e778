"""What an objective offers: its settings, a shift of the logits, and a term that is added to the loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from isfl.federation.values import Weights
from isfl.schema import Part
from isfl.theory.arrays import Array

LossTerm = Callable[[Tensor, Tensor, Tensor], Tensor | float]
"""From a batch of inputs, the logits the model just gave for it and its labels to what is added to its loss."""

RAREST = 1e-6
"""Target shares below this count as this in the calibration, so that it stays finite."""


@dataclass(frozen=True)
class LocalTraining:
    """What an objective may look at when a client begins a round."""

    model: nn.Module
    """The model to be trained; it holds the weights the client starts from."""
    global_model: Weights
    previous: Weights | None
    """The client's last local model, if the objective `keeps_local_model` and it has one."""
    probabilities: Array
    """(C,) `q^k`, what the client draws with."""
    target: Array
    """(C,) `p`."""
    counts: Array
    """(C,) samples the client has of each class."""


class Objective(Part):
    """The base of all objectives: cross-entropy with shifted logits, plus a term."""

    names: ClassVar[dict[str, dict[str, Any]]] = {}
    """Schemes of the literature that consist of this objective: name -> its settings there."""
    keeps_local_model: ClassVar[bool] = False
    """Whether a client must remember its last local model."""

    kind: str
    calibrate: bool = Field(False, description="add log(q_i / p_i) to the logits in training (prior calibration)")

    def logit_shift(self, local: LocalTraining) -> Tensor | None:
        """(C,) what is added to the logits in training only; None for nothing."""
        if not self.calibrate:
            return None
        return calibration(local.probabilities, local.target, float(local.counts.sum()))

    @contextmanager
    def term(self, local: LocalTraining) -> Iterator[LossTerm]:
        """What is added to the mean cross-entropy of each batch; hooks it needs are gone afterwards."""
        yield lambda inputs, logits, labels: 0.0


def calibration(probabilities: Array, target: Array, samples: float) -> Tensor:
    """`log(q'_i / p_i)` with `q' = (n q + C p) / (n + C)`, added to the logits in training.

    Whatever mix a client draws (`q`), the loss then aims at the target mix (`p`): a class it draws twice as
    often as the target has must win by a factor of two before it counts as won. After Menon et al., "Long-tail Learning
    via Logit Adjustment", ICLR 2021, with the sampling probabilities in place of a fixed prior.

    `q'` is `q` as if the client with `n` samples had one more per class, in the mix of the target: Laplace's rule of
    succession (Essai philosophique sur les probabilites, 1814) with the target in place of equal shares. A class
    without samples is thus rare, not impossible: with `log 0` the local loss would never compare it with those that the
    client has (ours). Drawing by the target needs no calibration: `q = p` gives zeros.
    """
    ratio, classes = probabilities / np.maximum(target, RAREST), len(target)
    return torch.from_numpy(np.log((samples * ratio + classes) / (samples + classes))).float()


def frozen_copy(model: nn.Module, weights: Weights) -> nn.Module:
    """Another model of this kind with these weights, in eval mode, that is never trained."""
    other = copy.deepcopy(model)
    other.load_state_dict(weights)
    return other.eval().requires_grad_(False)
