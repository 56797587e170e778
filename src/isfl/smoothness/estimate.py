"""The estimate of all clients' values, in three steps that worker processes can share.

`plan_estimate` looks at the global model and the data and divides the work, `measure_part` does one part of it, and
`conclude` puts the measurements together. The parts do not depend on who measures them or how many clients there are,
so one process and many give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from isfl.smoothness import class_mean, exact, last_layer
from isfl.smoothness.models import check_data, evaluation_mode, hold_on_to_memory, trainable
from isfl.smoothness.plan import MEMORY, Estimator, Measurements, Method, Plan
from isfl.theory.arrays import Array

METHODS: dict[Method, Estimator] = {"exact": exact, "class-mean": class_mean, "last-layer": last_layer}


@dataclass(frozen=True)
class LipschitzEstimate:
    """Values `L_{k,i}` and what it took to get them."""

    values: Array
    """(K, C); NaN where a class has no (finite) sample, a whole row NaN where a model equals the global one."""
    distances: Array
    """(K,) `||theta^k - theta||`."""
    dropped: np.ndarray
    """(K,) measurements left out because a gradient was not finite: samples, or with `class-mean` classes."""
    gradient_evaluations: int
    """Gradients of single samples that the work amounts to; the forward passes of `last-layer` count a third each."""


def lipschitz(
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    method: Method = "exact",
    memory: int = MEMORY,
) -> Array:
    """`L_{k,i} = max_{(x,y): y=i} ||grad l(x,y; theta^k) - grad l(x,y; theta)|| / ||theta^k - theta||`.

    Models are evaluated in eval mode (running statistics, no dropout) and left as they were. The global
    model's gradients are computed once for all clients: (K + 1) N gradients instead of 2 K N.

    Parameters
    ----------
    local_models
        K modules of the same architecture as `global_model`.
    global_model
        The module to compare with; any classifier that maps a batch to (B, C) logits.
    inputs
        Of the public set `D_L`: (N, ...).
    labels
        Of the public set: (N,) whole numbers in `0 .. num_classes - 1`.
    num_classes
        `C`.
    method
        `exact` as above; `class-mean` for the gradient of each class's mean loss; `last-layer` for the output
        layer's parameters alone, which takes forward passes only.
    memory
        Bytes to stay within; it bounds the chunk of samples whose gradients are held at a time.

    Returns
    -------
    Array
        Of shape (K, C). NaN for a class without samples (`sampling_probabilities` treats it as average);
        a row of NaN for a local model equal to the global one (keep that client's probabilities).
    """
    return estimate_lipschitz(
        local_models, global_model, inputs, labels, num_classes, method=method, memory=memory
    ).values


def estimate_lipschitz(
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    method: Method = "exact",
    memory: int = MEMORY,
) -> LipschitzEstimate:
    """`lipschitz` with its by-products."""
    plan = plan_estimate(global_model, inputs, labels, num_classes, method=method, memory=memory)
    distances = []
    for k in range(len(local_models)):
        model = local_models[k]
        _check_model(k, model, global_model)
        distances.append(distance(model, global_model))
    measurements = [
        measure_part(plan, number, local_models, global_model, inputs, labels) for number in range(len(plan))
    ]
    return conclude(plan, measurements, distances)


def plan_estimate(
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    method: Method = "exact",
    memory: int = MEMORY,
) -> Plan:
    """Check the input (ValueError), decide how to compute and divide `D_L`. Local models play no part in it."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}: it must be one of {', '.join(METHODS)}")
    labels = check_data(global_model, inputs, labels, num_classes)
    with evaluation_mode(global_model):
        division = METHODS[method].divide(global_model, inputs, labels, memory)
    return Plan(method, num_classes, len(labels), division)


def measure_part(
    plan: Plan,
    number: int,
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
) -> Measurements:
    """The squared gradient differences of part `number`, which is in `0 .. len(plan) - 1`, for all local models.

    Local models are asked for one after the other and none is used after the next: they may all be one module that
    is loaded with other weights each time it is asked for.
    """
    part = plan.division.parts[number]
    hold_on_to_memory()
    with evaluation_mode(global_model):
        return METHODS[plan.method].measure(plan.division, part, local_models, global_model, inputs, labels.long())


def conclude(plan: Plan, measurements: Sequence[Measurements], distances: Sequence[float]) -> LipschitzEstimate:
    """`L_{k,i} = max sqrt(square) / ||theta^k - theta||` over the finite measurements of class `i`.

    `measurements` are those of all parts, in any order; `distances` those of the local models, in theirs.
    """
    gaps = np.asarray(distances, dtype=np.float64)
    squares = np.concatenate([some.squares for some in measurements], axis=1)
    labels = np.concatenate([some.labels for some in measurements])
    finite = np.isfinite(squares)
    values = np.full((len(gaps), plan.num_classes), np.nan)
    for i in range(plan.num_classes):
        of_class = labels == i
        largest = np.where(finite[:, of_class], squares[:, of_class], -np.inf).max(axis=1, initial=-np.inf)
        seen = (largest >= 0) & (gaps > 0)
        values[seen, i] = np.sqrt(largest[seen]) / gaps[seen]
    return LipschitzEstimate(
        values=values,
        distances=gaps,
        dropped=(~finite).sum(axis=1),
        gradient_evaluations=METHODS[plan.method].evaluations(len(gaps) + 1, plan.samples),
    )


def distance(model: nn.Module, other: nn.Module) -> float:
    """`||theta^k - theta||` over the trainable parameters."""
    theirs = trainable(other)
    total = 0.0
    for name, parameter in trainable(model).items():
        total += float(((parameter.detach() - theirs[name].detach()).double() ** 2).sum())
    return total**0.5


def _check_model(k: int, model: nn.Module, global_model: nn.Module) -> None:
    shapes = {name: p.shape for name, p in trainable(global_model).items()}
    if {name: p.shape for name, p in trainable(model).items()} != shapes:
        raise ValueError(f"local_models[{k}] does not have the trainable parameters of global_model")
