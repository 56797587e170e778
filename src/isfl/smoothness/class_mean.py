"""Estimator `class-mean` (ours): the gradient of a class's mean loss instead of the largest of its samples.

`L_{k,i} = ||grad mean_{y=i} l(x,y; theta^k) - grad mean_{y=i} l(x,y; theta)|| / ||theta^k - theta||`

It takes batched passes and works for every model. By the triangle inequality it never exceeds the exact value. One
sample without a finite gradient makes the value of its whole class unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from isfl.smoothness.folded import folded
from isfl.smoothness.models import bytes_of_gradient, bytes_of_pass, evaluation_mode, trainable
from isfl.smoothness.plan import Division, Estimator, Measurements, fitting, slices
from isfl.smoothness.samples import Part, Samples


def divide(model: nn.Module, samples: Samples, memory: int) -> Division:
    """Make one part per class that has samples; a large class goes through the model in pieces."""
    labels = samples.labels
    places = [(labels == i).nonzero()[:, 0].tolist() for i in range(int(labels.max()) + 1)]
    gradients = 4 * bytes_of_gradient(model)  # the global model's, the local model's, one piece's, the difference
    largest = fitting(memory - gradients, bytes_of_pass(model, samples.inputs))
    return Division(tuple(tuple(place) for place in places if place), largest=largest)


def measure(
    division: Division, part: Part, local_models: Sequence[nn.Module], global_model: nn.Module, samples: Samples
) -> Measurements:
    """Return one squared difference per local model: that of the part's class."""
    samples = samples.part(part)
    reference = _mean_gradient(global_model, samples, division.largest)
    squares = np.zeros((len(local_models), 1))
    for k in range(len(local_models)):
        model = local_models[k]
        with evaluation_mode(model):
            ours = _mean_gradient(model, samples, division.largest)
        for a, b in zip(ours, reference, strict=True):
            squares[k] += float(torch.linalg.vector_norm(a - b).double()) ** 2
    return Measurements(squares, samples.labels[:1].cpu().numpy())


def evaluations(models: int, samples: int) -> int:
    """Count one forward and one backward pass per model and sample."""
    return models * samples


def _mean_gradient(model: nn.Module, samples: Samples, largest: int) -> list[Tensor]:
    """Return the gradient of the mean loss for all trainable parameters."""
    parameters = list(trainable(model).values())
    totals: list[Tensor] = []
    for some in slices(len(samples), largest):
        with torch.enable_grad(), folded(model):
            losses = samples.part(some).losses(model).sum()
            found = torch.autograd.grad(losses / len(samples), parameters, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
        gradients = [g.to_dense() if g.is_sparse else g for g in gradients]
        totals = [total.add_(g) for total, g in zip(totals, gradients, strict=True)] if totals else gradients
    return totals


ESTIMATOR = Estimator("class-mean", "on the mean loss of each class", divide, measure, evaluations)
