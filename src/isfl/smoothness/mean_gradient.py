"""The gradient of the expected loss: the left-hand side of Theorem 1.

Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for Non-i.i.d. Data with Local Importance
Sampling", IEEE Internet of Things Journal, 2024.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.smoothness.models import evaluation_mode
from isfl.theory.arrays import Array

BATCH = 250
"""Samples in one pass; the last bits of a result depend on it."""


def squared_gradient(model: nn.Module, inputs: Tensor, labels: Tensor, target: Array) -> float:
    """Return `||grad l(theta)||^2` with `l = sum_i p_i l_i`, `l_i` the mean loss of class `i` over these samples.

    Classes without a sample are left out and the other shares are scaled up. The model is evaluated in eval mode, so
    its loss depends on the parameters alone.
    """
    counts = np.bincount(labels.cpu().numpy(), minlength=len(target))
    shares = np.where(counts > 0, target, 0.0)
    per_class = shares / max(shares.sum(), np.finfo(float).tiny) / np.maximum(counts, 1)
    weights = torch.from_numpy(per_class).float().to(labels.device)[labels]
    parameters = [p for p in model.parameters() if p.requires_grad]
    sums = [torch.zeros_like(p) for p in parameters]
    with evaluation_mode(model), torch.enable_grad():
        for start in range(0, len(labels), BATCH):
            rows = slice(start, start + BATCH)
            losses = F.cross_entropy(model(inputs[rows]), labels[rows], reduction="none")
            grads = torch.autograd.grad((weights[rows] * losses).sum(), parameters, allow_unused=True)
            for total, grad in zip(sums, grads, strict=True):
                if grad is not None:
                    total += grad
    return float(sum(total.double().square().sum() for total in sums))
