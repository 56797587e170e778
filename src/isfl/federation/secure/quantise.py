"""Updates as integers that can be summed exactly, and their sum as a model.

One value of the update of client k, `w_k (theta^k - theta)` with `w_k` at most 1, is clipped to the range R and rounded
to a multiple of `R / (2^(bits - 1) - 1)`. Two more integers follow: the training loss, weighted by the number of
samples and clipped at 64, and how many values were clipped, at most `2^(bits - 1) - 1` per client. Sums are modulo
2^32; negative numbers are two's complements.

The mean over m clients differs from the exact one by at most half a step times `m / sum_k w_k`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from isfl.federation.secure.settings import SecureAggregation
from isfl.federation.values import Weights

LOSS_RANGE = 64.0
"""Larger training losses are clipped: random guessing among 10^6 classes has 14."""
MASKED = "masked"
"""The name of the vector that a client uploads in place of its model."""
EXTRA = 2
"""The loss, and the number of clipped values."""


@dataclass(frozen=True)
class Summed:
    """What the server learns from the masked updates of a round."""

    model: Weights
    """The current model plus the weighted mean of the updates; counters are left out."""
    train_loss: float
    """Weighted by the numbers of samples."""
    clipped: int
    """Values of all updates beyond the range, losses beyond theirs included."""


def summed_names(model: Weights) -> list[str]:
    """Return what is summed: everything but counters, which the server keeps as they are."""
    return [name for name in sorted(model) if model[name].is_floating_point()]


def expected_upload(model: Weights) -> Weights:
    """Return names, shapes and types of an upload, without its values."""
    length = sum(model[name].numel() for name in summed_names(model)) + EXTRA
    return {MASKED: torch.empty(length, dtype=torch.int32, device="meta")}


def is_finite(model: Weights, loss: float | None) -> bool:
    """Return whether every value can be quantised."""
    return all(bool(torch.isfinite(value).all()) for value in model.values()) and np.isfinite(loss or 0.0).item()


def quantised(
    local: Weights, current: Weights, weight: float, loss: float, loss_weight: float, secure: SecureAggregation
) -> np.ndarray:
    """Return the (D + 2,) integers of an update, modulo 2^32. Both weights are at most 1."""
    parts, clipped = [], 0
    for name in summed_names(local):
        moved = (local[name].double() - current[name].double()).reshape(-1).numpy()
        clipped += int((np.abs(moved) > secure.range).sum())
        parts.append(_rounded(moved, secure.range, weight, secure.largest))
    clipped += abs(loss) > LOSS_RANGE
    parts.append(_rounded(np.array([loss]), LOSS_RANGE, loss_weight, secure.largest))
    parts.append(np.array([min(clipped, secure.largest)]))
    return np.concatenate(parts).astype(np.uint32)


def _rounded(values: np.ndarray, limit: float, weight: float, largest: int) -> np.ndarray:
    return np.rint(np.clip(values, -limit, limit) * (weight * largest / limit)).astype(np.int64)


def restored(
    total: np.ndarray, current: Weights, weight: float, loss_weight: float, secure: SecureAggregation
) -> Summed:
    """Return the mean of updates from their sum; the weights are those of all clients in it, added up."""
    numbers = total.astype(np.uint32).view(np.int32).astype(np.float64)
    model, start = {}, 0
    for name in summed_names(current):
        value = current[name]
        moved = numbers[start : start + value.numel()] * secure.step / weight
        model[name] = (value.double() + torch.from_numpy(moved).reshape(value.shape)).to(value.dtype)
        start += value.numel()
    loss, clipped = numbers[start:]
    return Summed(model, float(loss * (LOSS_RANGE / secure.largest) / loss_weight), int(clipped))
