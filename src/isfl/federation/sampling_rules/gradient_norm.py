"""ISFedAvg: Rizk, Vlaski, Sayed, "Optimal Importance Sampling for Federated Learning", ICASSP 2021, as the ISFL paper
words it: each local sample by the norm of its gradient at the global model."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from isfl.data.dataset import Dataset
from isfl.federation.sampling_rules.base import Draws, LocalData, SamplingRule
from isfl.sampling import Indices
from isfl.smoothness import sample_gradient_norms
from isfl.theory.arrays import Array


class GradientNorm(SamplingRule):
    """ISFedAvg: every sample by its gradient norm at the global model, refreshed each round.

    With `unbiased = true`, the loss of a sample drawn with probability `s_i` is weighted by `1 / (N s_i)`, so that the
    mean gradient stays that of the local data, as Rizk et al. (2021) assume. The ISFL paper does not say so.
    """

    names: ClassVar[dict[str, dict[str, Any]]] = {"isfedavg": {}}
    from_local_model: ClassVar[bool] = True
    rule: Literal["gradient-norm"] = "gradient-norm"
    unbiased: bool = Field(False, description="weigh the loss of a sample by one over N times its probability")

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        return counts / counts.sum()

    def draws(self, local: LocalData) -> Draws:
        if local.stream.round == 1:  # the initial model's gradients say nothing yet: draw by the local mix
            return super().draws(local)
        data, weights = local.data, gradient_norm_weights(local.model, local.data)
        shares = weights / weights.sum()

        def indices(epoch: int) -> Indices:
            return local.stream.epoch(epoch).choice(len(shares), size=local.size, p=shares)

        loss_weights = 1.0 / (len(data) * np.where(shares > 0, shares, 1.0))
        return Draws(
            indices,
            probabilities=np.asarray(np.bincount(data.labels.numpy(), shares, data.num_classes), dtype=np.float64),
            evaluations=len(data),
            loss_weights=torch.from_numpy(loss_weights).float() if self.unbiased else None,
        )


def gradient_norm_weights(model: nn.Module, data: Dataset) -> Array:
    """(N,) gradient norms of the local samples. One that is not finite counts 0; if nothing is left, all count 1."""
    device = next(model.parameters()).device
    inputs, labels = data.everything()
    norms = sample_gradient_norms(model, inputs.to(device), labels.to(device)).numpy()
    weights = np.where(np.isfinite(norms), norms, 0.0)
    return weights if weights.sum() > 0 else np.ones(len(data))
