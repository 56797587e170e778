"""From the clients' models to the next global model.

Sums run in double precision and in the order given; `run_round` gives them by client id, so that the result does not
depend on who answered first.
Server optimisers move parameters only; BatchNorm statistics are averaged (a running variance must stay one).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from isfl.federation.scheme import Aggregation, Median, ServerAdam, ServerMomentum, TrimmedMean
from isfl.federation.values import ClientUpdate, ServerMemory, Weights


def client_weights(rule: Aggregation, sizes: Sequence[int]) -> np.ndarray:
    """`pi_k`: by size, or equal; robust rules count every client once."""
    by_size = getattr(rule, "weights", "client") == "size"
    raw = np.asarray(sizes, dtype=np.float64) if by_size else np.ones(len(sizes))
    return raw / raw.sum()


def aggregate(
    rule: Aggregation,
    current: Weights,
    updates: Sequence[ClientUpdate],
    memory: ServerMemory,
    parameters: frozenset[str],
) -> tuple[Weights, ServerMemory]:
    """The next global model and the server's buffers; `parameters` names what an optimiser may move."""
    weights = client_weights(rule, [update.num_samples for update in updates])
    names = updates[0].model.keys()
    stacks = {name: [update.model[name] for update in updates] for name in names}
    combined = {name: _combine(rule, values, weights).to(values[0].dtype) for name, values in stacks.items()}
    if isinstance(rule, ServerMomentum | ServerAdam):
        moved, memory = _optimise(rule, current, combined, memory, parameters & set(names))
        combined.update(moved)
    return {**current, **combined}, memory


def _combine(rule: Aggregation, values: list[Tensor], weights: np.ndarray) -> Tensor:
    if not values[0].is_floating_point():
        return torch.stack(values).amax(dim=0)  # counters, such as BatchNorm's number of batches
    if isinstance(rule, Median):
        # The mean of the two middle values, where torch.median would take the lower one.
        ordered = torch.stack(values).double().sort(dim=0).values
        return (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2
    if isinstance(rule, TrimmedMean):
        cut = min(int(rule.trim * len(values)), (len(values) - 1) // 2)
        ordered = torch.stack(values).double().sort(dim=0).values
        return ordered[cut : len(values) - cut].mean(dim=0)
    total = torch.zeros_like(values[0], dtype=torch.float64)
    for value, weight in zip(values, weights, strict=True):
        total += value.double() * float(weight)
    return total


def _optimise(
    rule: ServerMomentum | ServerAdam,
    current: Weights,
    mean: Weights,
    memory: ServerMemory,
    names: set[str] | frozenset[str],
) -> tuple[Weights, ServerMemory]:
    """One step of the server's optimiser on the mean update `mean_k theta^k - theta`."""
    moved: Weights = {}
    first: Weights = {}
    second: Weights = {}
    for name in sorted(names):
        delta = mean[name] - current[name]
        before = memory.first.get(name, torch.zeros_like(delta))
        if isinstance(rule, ServerMomentum):
            first[name] = rule.momentum * before + delta
            moved[name] = current[name] + rule.lr * first[name]
        else:
            square = memory.second.get(name, torch.full_like(delta, rule.tau**2))
            first[name] = rule.beta1 * before + (1 - rule.beta1) * delta
            second[name] = rule.beta2 * square + (1 - rule.beta2) * delta**2
            moved[name] = current[name] + rule.lr * first[name] / (second[name].sqrt() + rule.tau)
    return moved, ServerMemory(first, second)
