"""The one training loop of the project.

It has slots for drawing samples, transforming batches, weighting samples and adding to the loss.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.data.dataset import Dataset
from isfl.data.transforms import Augmentation
from isfl.federation.normalization import frozen_statistics
from isfl.federation.objectives import LossTerm
from isfl.federation.optimizers import Optimizer
from isfl.federation.sampling_rules import Draws
from isfl.federation.settings import Training
from isfl.sampling import Indices
from isfl.theory.arrays import Array


@dataclass(frozen=True)
class TrainingStatistics:
    loss: float
    """Mean cross-entropy over the samples of all epochs."""
    samples: int
    gradient_norm: Array | None
    gradient_variance: Array | None
    noise_seconds: float
    """Spent on measuring the gradients."""


@dataclass(frozen=True)
class Slots:
    """What a scheme puts into the training loop."""

    draws: Draws
    """Which samples an epoch uses, and the weight of each sample's loss."""
    augment: Augmentation | None
    """Transforms the batches of an epoch."""
    optimizer: Optimizer
    logit_shift: Tensor | None
    """(C,) added to the logits before the cross-entropy (prior calibration, FedLC)."""
    term: LossTerm
    """`term(inputs, logits, labels)` is added to the mean cross-entropy of a batch."""
    measure_noise: bool
    """Whether norm and variance of the gradients are measured."""


def train(model: nn.Module, data: Dataset, training: Training, slots: Slots) -> TrainingStatistics:
    """Train `model` in place for `training.local_epochs` epochs with a new optimiser."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = slots.optimizer.stepper(parameters)
    device = parameters[0].device
    shift = None if slots.logit_shift is None else slots.logit_shift.to(device)
    loss_weights = slots.draws.loss_weights
    model.train()
    total, samples, noise_seconds = 0.0, 0, 0.0
    norms, variances = [], []
    for epoch in range(training.local_epochs):
        noise = GradientNoise(parameters) if slots.measure_noise else None
        transform = None if slots.augment is None else slots.augment(epoch)
        for batch in batches(slots.draws.indices(epoch), training.batch_size, training.drop_last):
            inputs, labels = (part.to(device) for part in data.batch(batch, transform))
            with frozen_statistics(model, frozen=len(labels) == 1):
                logits = model(inputs)
            shifted = logits if shift is None else logits + shift
            if loss_weights is None:
                entropy = F.cross_entropy(shifted, labels)
            else:
                weights = loss_weights[torch.from_numpy(batch)].to(device)
                entropy = (weights * F.cross_entropy(shifted, labels, reduction="none")).mean()
            loss = entropy + slots.term(inputs, logits, labels)
            for parameter in parameters:
                parameter.grad = None
            loss.backward()  # type: ignore[no-untyped-call]
            if noise is not None:
                began = time.perf_counter()
                noise.add()
                noise_seconds += time.perf_counter() - began
            optimizer.step()
            total += float(entropy.detach()) * len(labels)
            samples += len(labels)
        if noise is not None:
            norms.append(noise.mean_norm)
            variances.append(noise.variance)
    return TrainingStatistics(
        loss=total / samples,
        samples=samples,
        gradient_norm=np.array(norms) if slots.measure_noise else None,
        gradient_variance=np.array(variances) if slots.measure_noise else None,
        noise_seconds=noise_seconds,
    )


def epoch_size(num_samples: int, sampling_ratio: float) -> int:
    """Return the samples of an epoch: `floor(SR * |D_k|)`, at least one."""
    return max(1, int(np.floor(sampling_ratio * num_samples)))


def steps_per_epoch(num_samples: int, training: Training) -> int:
    """Return the gradient steps that a client with this many samples takes in a local epoch."""
    drawn = np.arange(epoch_size(num_samples, training.sampling_ratio))
    return len(batches(drawn, training.batch_size, training.drop_last))


def batches(indices: Indices, size: int, drop_last: bool) -> list[Indices]:
    """Return consecutive batches; a last batch of one sample, which BatchNorm cannot normalise, joins its neighbour."""
    cuts = [indices[start : start + size] for start in range(0, len(indices), size)]
    if len(cuts) > 1 and len(cuts[-1]) < size and (drop_last or len(cuts[-1]) == 1):
        last = cuts.pop()
        if not drop_last:
            cuts[-1] = np.concatenate([cuts[-1], last])
    return cuts


class GradientNoise:
    """`G` and `sigma^2` of Assumption 2, measured over the gradient steps of one epoch.

    The variance is taken around the epoch's mean gradient, so it contains the drift of the model within the
    epoch and errs on the large side. It needs one buffer of the model's size and two passes over it per batch.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.sums = [torch.zeros_like(p) for p in parameters]
        self.norms: list[float] = []

    def add(self) -> None:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        self.norms.append(float(norm))
        torch._foreach_add_(self.sums, grads)

    @property
    def mean_norm(self) -> float:
        return float(np.mean(self.norms))

    @property
    def variance(self) -> float:
        """`n/(n-1) (mean ||g||^2 - ||mean g||^2)`; 0 for a single batch, which shows no variance."""
        n = len(self.norms)
        if n < 2:
            return 0.0
        mean = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(self.sums)))) / n
        return max(0.0, (float(np.mean(np.square(self.norms))) - mean**2) * n / (n - 1))
