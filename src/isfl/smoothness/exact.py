"""The empirical gradient-Lipschitz values of the paper, as defined, for all clients at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from isfl.smoothness.models import check_data, chunk_size, evaluation_mode, trainable
from isfl.smoothness.per_sample import gradients_of, squared_norms
from isfl.theory.arrays import Array

MEMORY = 256 << 20
"""Bytes the estimator may use for gradients and activations (one sample of a very large model may need more)."""


@dataclass(frozen=True)
class LipschitzEstimate:
    """Values `L_{k,i}` and what it took to get them."""

    values: Array
    """(K, C); NaN where a class has no (finite) sample, a whole row NaN where a model equals the global one."""
    distances: Array
    """(K,) `||theta^k - theta||`."""
    dropped: np.ndarray
    """(K,) samples left out because their gradient was not finite."""
    gradient_evaluations: int


def lipschitz(
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    memory: int = MEMORY,
) -> Array:
    """`L_{k,i} = max_{(x,y): y=i} ||grad l(x,y; theta^k) - grad l(x,y; theta)|| / ||theta^k - theta||`.

    Parameters
    ----------
    local_models : K modules of the same architecture as `global_model`.
    global_model : the module to compare with; any classifier that maps a batch to (B, C) logits.
    inputs, labels : the public set `D_L`: (N, ...) and (N,) whole numbers in `0 .. num_classes - 1`.
    num_classes : `C`.
    memory : bytes to stay within; it bounds the chunk of samples whose gradients are held at a time.

    Returns
    -------
    Array of shape (K, C). NaN for a class without samples (`sampling_probabilities` treats it as average);
    a row of NaN for a local model equal to the global one (keep that client's probabilities).

    Models are evaluated in eval mode (running statistics, no dropout) and left as they were. The global
    model's gradients are computed once for all clients: (K + 1) N gradients instead of 2 K N.
    """
    return estimate_lipschitz(local_models, global_model, inputs, labels, num_classes, memory=memory).values


def estimate_lipschitz(
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    memory: int = MEMORY,
) -> LipschitzEstimate:
    """`lipschitz` with its by-products."""
    labels = check_data(global_model, inputs, labels, num_classes)
    _check_models(local_models, global_model)
    distances = np.array([distance(model, global_model) for model in local_models])
    squares = np.zeros((len(local_models), len(labels)))
    with evaluation_mode(global_model, *local_models):
        gradients = gradients_of([global_model, *local_models], inputs, labels)
        chunk = chunk_size(global_model, inputs, memory, copies=4)  # theirs, ours (twice, if slowly), the difference
        for start in range(0, len(labels), chunk):
            part = slice(start, start + chunk)
            reference = dict(gradients(global_model, inputs[part], labels[part]))
            for k, model in enumerate(local_models):
                square = torch.zeros(len(labels[part]), dtype=torch.float64)
                for name, grads in gradients(model, inputs[part], labels[part]):
                    square += squared_norms(grads - reference[name])
                squares[k, part] = square.numpy()

    finite = np.isfinite(squares)
    values = np.full((len(local_models), num_classes), np.nan)
    for i in range(num_classes):
        of_class = labels.cpu().numpy() == i
        usable = finite[:, of_class]
        largest = np.where(usable, squares[:, of_class], -np.inf).max(axis=1, initial=-np.inf)
        seen = (largest >= 0) & (distances > 0)
        values[seen, i] = np.sqrt(largest[seen]) / distances[seen]
    return LipschitzEstimate(
        values=values,
        distances=distances,
        dropped=(~finite).sum(axis=1),
        gradient_evaluations=(len(local_models) + 1) * len(labels),
    )


def distance(model: nn.Module, other: nn.Module) -> float:
    """`||theta^k - theta||` over the trainable parameters."""
    theirs = trainable(other)
    total = 0.0
    for name, parameter in trainable(model).items():
        total += float(((parameter.detach() - theirs[name].detach()).double() ** 2).sum())
    return total**0.5


def _check_models(local_models: Sequence[nn.Module], global_model: nn.Module) -> None:
    shapes = {name: p.shape for name, p in trainable(global_model).items()}
    for k, model in enumerate(local_models):
        if {name: p.shape for name, p in trainable(model).items()} != shapes:
            raise ValueError(f"local_models[{k}] does not have the trainable parameters of global_model")
