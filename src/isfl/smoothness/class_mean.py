"""A cheaper estimate: the gradient of a class's mean loss instead of the largest of its samples.

`L_{k,i} = ||grad mean_{y=i} l(x,y; theta^k) - grad mean_{y=i} l(x,y; theta)|| / ||theta^k - theta||`

Batched passes, right for every model. By the triangle inequality never above the exact value, and one sample
without a finite gradient costs its whole class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.smoothness.folded import folded
from isfl.smoothness.models import bytes_of_gradient, bytes_of_pass, evaluation_mode, trainable
from isfl.smoothness.plan import Division, Measurements, Part, chosen, fitting, slices


def divide(model: nn.Module, inputs: Tensor, labels: Tensor, memory: int) -> Division:
    """One part a class that has samples; a large class is passed through in pieces."""
    places = [(labels == i).nonzero()[:, 0].tolist() for i in range(int(labels.max()) + 1)]
    gradients = 4 * bytes_of_gradient(model)  # theirs, ours, a piece of ours, the difference
    largest = fitting(memory - gradients, bytes_of_pass(model, inputs))
    return Division(tuple(tuple(place) for place in places if place), largest=largest)


def measure(
    division: Division,
    part: Part,
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
) -> Measurements:
    inputs, labels = chosen(inputs, part), chosen(labels, part)
    reference = _mean_gradient(global_model, inputs, labels, division.largest)
    squares = np.zeros((len(local_models), 1))
    for k in range(len(local_models)):
        model = local_models[k]
        with evaluation_mode(model):
            ours = _mean_gradient(model, inputs, labels, division.largest)
        for a, b in zip(ours, reference, strict=True):
            squares[k] += float(torch.linalg.vector_norm(a - b).double()) ** 2
    return Measurements(squares, labels[:1].cpu().numpy())


def evaluations(models: int, samples: int) -> int:
    """Every sample goes once forward and once backward through every model."""
    return models * samples


def _mean_gradient(model: nn.Module, inputs: Tensor, labels: Tensor, largest: int) -> list[Tensor]:
    """With respect to all trainable parameters, over all samples."""
    parameters = list(trainable(model).values())
    totals: list[Tensor] = []
    for some in slices(len(labels), largest):
        with torch.enable_grad(), folded(model):
            losses = F.cross_entropy(model(chosen(inputs, some).clone()), chosen(labels, some), reduction="sum")
            found = torch.autograd.grad(losses / len(labels), parameters, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
        gradients = [g.to_dense() if g.is_sparse else g for g in gradients]
        totals = [total.add_(g) for total, g in zip(totals, gradients, strict=True)] if totals else gradients
    return totals
