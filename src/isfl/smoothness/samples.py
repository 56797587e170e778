"""The public set `D_L`, and the loss whose gradients are compared on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

Loss = Callable[[Tensor, Tensor], Tensor]
"""Takes logits (B, C) and labels (B,) and returns one loss per sample, (B,)."""

Part = range | tuple[int, ...]
"""Indices into `D_L`."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each sample, the loss of the ISFL paper."""
    return F.cross_entropy(logits, labels, reduction="none")


@dataclass(frozen=True)
class Samples:
    """Some samples of `D_L` and the loss that is measured on them."""

    inputs: Tensor
    """(B, ...)."""
    labels: Tensor
    """(B,) of type int64."""
    loss: Loss = cross_entropy

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, part: Part) -> Samples:
        """Return the samples at these indices, in the memory format of the data."""
        return replace(self, inputs=_chosen(self.inputs, part), labels=_chosen(self.labels, part))

    def single(self, index: int) -> Samples:
        """Return one sample as a batch of one."""
        return self.part(range(index, index + 1))

    def losses(self, model: nn.Module) -> Tensor:
        """Return the loss of each sample, (B,), from one forward pass."""
        return self.losses_of(model(self.inputs.clone()))  # a model may overwrite its input

    def losses_of(self, logits: Tensor) -> Tensor:
        """Return the loss of each sample, (B,), from its logits."""
        return _one_per_sample(self.loss(logits, self.labels), len(self))

    def logit_gradients(self, logits: Tensor) -> Tensor:
        """Return the gradient of each sample's loss at its logits, (B, C)."""
        if self.loss is cross_entropy:
            return F.softmax(logits, 1) - F.one_hot(self.labels, logits.shape[1])
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.losses_of(leaf).sum(), leaf)
        return gradient


def check_loss(loss: Loss, logits: Tensor, label: Tensor) -> None:
    """Raise a ValueError unless the loss gives each sample its own, differentiable value.

    `logits` (1, C) and `label` (1,) belong to one sample; the loss sees them twice, as a batch of two.
    """
    with torch.enable_grad():
        two = logits.detach().nan_to_num().repeat(2, 1).requires_grad_()
        losses = _one_per_sample(loss(two, label.repeat(2)), 2)
        if not losses.requires_grad:
            raise ValueError("loss must be differentiable with respect to the logits: autograd does not see them in it")
        (gradient,) = torch.autograd.grad(losses[0], two)
    if bool(gradient[1].any()):
        raise ValueError("loss mixes the samples of a batch: each value must depend on its own row of logits alone")


def _one_per_sample(losses: Any, count: int) -> Tensor:
    if isinstance(losses, Tensor) and losses.shape == (count,):
        return losses
    found = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
    raise ValueError(
        f"loss must return one value per sample, of shape (B,) = ({count},), found {found}: "
        "do not average over the batch (torch's losses: reduction='none')"
    )


def _chosen(data: Tensor, part: Part) -> Tensor:
    if isinstance(part, range):
        return data[part.start : part.stop]
    some = data[torch.tensor(part)]
    last = data.dim() == 4 and data.is_contiguous(memory_format=torch.channels_last)
    return some.contiguous(memory_format=torch.channels_last) if last else some


def from_loader(loader: DataLoader[Any], model: nn.Module) -> tuple[Tensor, Tensor]:
    """Return all inputs and labels of a loader of (inputs, labels) batches, on the device of the model."""
    batches = []
    for number, batch in enumerate(loader):
        pair = isinstance(batch, list | tuple) and len(batch) == 2
        if not pair or not all(isinstance(item, Tensor) for item in batch):
            raise ValueError(f"batch {number} of the DataLoader must be a pair of tensors (inputs, labels)")
        batches.append(batch)
    if not batches:
        raise ValueError("the DataLoader gives no batch: at least one sample is needed")
    device = next(model.parameters()).device if list(model.parameters()) else None
    inputs, labels = (torch.cat(list(tensors)).to(device) for tensors in zip(*batches, strict=True))
    return inputs, labels
