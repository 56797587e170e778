"""The estimate of all clients' Lipschitz values, in three steps that worker processes can share.

`plan_estimate` looks at the global model and the data and divides the work, `measure_part` does one part of it, and
`conclude` puts the measurements together. The parts depend neither on the process that measures them nor on the number
of clients, so one process and many give the same bits.

The definition of `L_{k,i}` is that of Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for
Non-i.i.d. Data with Local Importance Sampling", IEEE Internet of Things Journal, 2024.

To add an estimator, write a file of this package that defines `ESTIMATOR` and add its name to `FILES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import numpy as np
from torch import Tensor, nn

from isfl.smoothness.models import check_data, evaluation_mode, trainable
from isfl.smoothness.plan import MEMORY, Estimator, Measurements, Plan
from isfl.smoothness.samples import Loss, Samples, cross_entropy
from isfl.theory.arrays import Array

FILES = (
    "exact",
    "class_mean",
    "last_layer",
)


def _listed() -> dict[str, Estimator]:
    found: list[Estimator] = [import_module(f"isfl.smoothness.{file}").ESTIMATOR for file in FILES]
    return {estimator.name: estimator for estimator in found}


ESTIMATORS = _listed()
"""The estimators of `L` by name."""


@dataclass(frozen=True)
class LipschitzEstimate:
    """Values `L_{k,i}` and what it took to measure them."""

    values: Array
    """(K, C); NaN where a class has no (finite) sample, a whole row NaN where a model equals the global one."""
    distances: Array
    """(K,) `||theta^k - theta||`."""
    dropped: np.ndarray
    """(K,) measurements left out because a gradient was not finite: samples, or with `class-mean` classes."""
    gradient_evaluations: int
    """The equivalent number of single-sample gradients; each forward pass of `last-layer` counts as a third."""


def plan_estimate(
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    method: str = "exact",
    loss: Loss = cross_entropy,
    memory: int = MEMORY,
) -> Plan:
    """Check the input (ValueError), decide how to compute, and divide `D_L`; independent of the local models."""
    if method not in ESTIMATORS:
        raise ValueError(f"method is {method!r}: it must be one of {', '.join(ESTIMATORS)}")
    samples = check_data(global_model, Samples(inputs, labels, loss), num_classes)
    with evaluation_mode(global_model):
        division = ESTIMATORS[method].divide(global_model, samples, memory)
    return Plan(method, num_classes, len(samples), division, loss)


def measure_part(
    plan: Plan,
    number: int,
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
) -> Measurements:
    """Return the squared gradient differences of part `number` in `0 .. len(plan) - 1`, for all local models.

    Local models are requested one after the other and none is used after the next: they may all be one module that
    loads other weights at each request.
    """
    part, samples = plan.division.parts[number], Samples(inputs, labels.long(), plan.loss)
    with evaluation_mode(global_model):
        return ESTIMATORS[plan.method].measure(plan.division, part, local_models, global_model, samples)


def conclude(plan: Plan, measurements: Sequence[Measurements], distances: Sequence[float]) -> LipschitzEstimate:
    """Return `L_{k,i} = max sqrt(square) / ||theta^k - theta||` over the finite measurements of class `i`.

    `measurements` are those of all parts, in any order; `distances` has one entry per local model, in their order.
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
        gradient_evaluations=ESTIMATORS[plan.method].evaluations(len(gaps) + 1, plan.samples),
    )


def distance(model: nn.Module, other: nn.Module) -> float:
    """Return `||theta^k - theta||` over the trainable parameters."""
    theirs = trainable(other)
    total = 0.0
    for name, parameter in trainable(model).items():
        total += float(((parameter.detach() - theirs[name].detach()).double() ** 2).sum())
    return total**0.5
