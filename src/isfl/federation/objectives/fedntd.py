"""FedNTD: Lee, Jeong, Shin, Bae, Yun, "Preservation of the Global Knowledge by Not-True Distillation in Federated
Learning", NeurIPS 2022."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from isfl.federation.objectives.base import LocalTraining, LossTerm, Objective, frozen_copy


class FedNTD(Objective):
    """`+ beta KL(global || local)` over the classes that are not the label: what a client does not see is kept."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"fedntd": {}}
    kind: Literal["fedntd"] = "fedntd"
    beta: float = Field(1.0, ge=0, description="weight of the term")
    tau: float = Field(1.0, gt=0, description="temperature of both softmaxes")

    @contextmanager
    def term(self, local: LocalTraining) -> Iterator[LossTerm]:
        teacher = frozen_copy(local.model, local.global_model)

        def term(inputs: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
            with torch.no_grad():
                known = teacher(inputs)
            return self.beta * not_true_divergence(logits, known, labels, self.tau)

        yield term


def not_true_divergence(logits: Tensor, teacher: Tensor, labels: Tensor, tau: float) -> Tensor:
    """`KL(softmax(teacher/tau) || softmax(logits/tau))` without the true class, mean over the batch."""
    if logits.shape[1] < 3:  # without the true class one of two is left: nothing to compare
        return logits.sum() * 0.0
    true = F.one_hot(labels, logits.shape[1]).bool()
    ours, theirs = (values[~true].view(len(labels), -1) / tau for values in (logits, teacher))
    return F.kl_div(F.log_softmax(ours, 1), F.log_softmax(theirs, 1), reduction="batchmean", log_target=True)
