"""Moments of the gradients of each class at one model (ours): what `theory/bias_variance.py` needs.

One pass over the public set: each sample's gradient is added to the sum of its class, and its squared norm is kept.
One pass takes as many gradients as there are samples, however many clients there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.smoothness.gradients import Gradient, dense
from isfl.smoothness.models import bytes_of_pass, check_data, evaluation_mode, trainable
from isfl.smoothness.outer import norms
from isfl.smoothness.per_sample import believed, visit
from isfl.smoothness.plan import MEMORY, fitting, slices
from isfl.smoothness.samples import Samples
from isfl.theory.bias_variance import Moments, estimate_moments


@dataclass(frozen=True)
class MomentsEstimate:
    """Moments and their cost."""

    moments: Moments | None
    """None if no class has two samples with a finite gradient."""
    dropped: int
    """Samples left out because their gradient is not finite."""
    gradient_evaluations: int
    """Per-sample gradients that were computed."""


@dataclass(frozen=True)
class _Sums:
    """What one visit of some samples finds."""

    gram: Tensor
    """(C, C) inner products of the sums of the classes' gradients."""
    squares: Tensor
    """(B,) squared norms of the samples' gradients."""


def gradient_moments(
    model: nn.Module, inputs: Tensor, labels: Tensor, num_classes: int, *, memory: int = MEMORY
) -> MomentsEstimate:
    """Estimate the Gram matrix of class-mean gradients and the variance inside each class.

    The model is in eval mode for the time of the estimate. A class without samples counts as average. Where the sums of
    all classes do not fit into `memory`, several passes keep some of the parameters each.

    Parameters
    ----------
    model
        Any classifier that maps a batch to (B, C) logits.
    inputs, labels
        The public set `D_L`: (N, ...), and (N,) whole numbers in `0 .. num_classes - 1`.
    num_classes
        `C`.
    memory
        Bytes for gradients and activations.

    Raises
    ------
    ValueError
        If model and data do not fit together; the message names what is wrong.
    """
    samples = check_data(model, Samples(inputs, labels), num_classes)
    with evaluation_mode(model):
        fast = believed(model, samples)
        groups = _groups(model, num_classes, memory // 2)
        size = fitting(memory // 2, bytes_of_pass(model, inputs) + 2 * _largest(model)) if fast else 1
        evaluations, dropped = 0, 0
        while True:
            sums = _sums(model, samples, num_classes, groups, size, fast)
            evaluations += len(groups) * len(samples)
            finite = sums.squares.isfinite()
            if bool(finite.all()):
                break
            # A gradient that is not finite spoils the sum of its class: leave such samples out and begin again.
            dropped += int((~finite).sum())
            if not finite.any():
                return MomentsEstimate(None, dropped, evaluations)
            samples = samples.part(tuple(finite.nonzero()[:, 0].tolist()))
    return MomentsEstimate(_moments(sums, samples.labels.cpu(), num_classes), dropped, evaluations)


def _moments(sums: _Sums, labels: Tensor, classes: int) -> Moments | None:
    counts = torch.bincount(labels, minlength=classes).double()
    per_class = counts.clamp(min=1)
    mean_square = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels, sums.squares) / per_class
    gram = sums.gram / per_class[:, None] / per_class
    return estimate_moments(gram.numpy(), mean_square.numpy(), counts.numpy())


def _sums(
    model: nn.Module, samples: Samples, classes: int, groups: Sequence[frozenset[str]], size: int, fast: bool
) -> _Sums:
    gram = torch.zeros(classes, classes, dtype=torch.float64)
    squares = torch.zeros(len(samples), dtype=torch.float64)
    for group in groups:
        totals: dict[str, Tensor] = {}
        for part in slices(len(samples), size):
            squares[part.start : part.stop] += _add_part(model, samples.part(part), classes, group, fast, totals)
        for total in totals.values():
            wide = total.double()
            gram += (wide @ wide.T).cpu()
    return _Sums(gram, squares)


def _add_part(
    model: nn.Module, samples: Samples, classes: int, group: frozenset[str], fast: bool, totals: dict[str, Tensor]
) -> Tensor:
    """Add the gradients of the group's parameters to `totals`, (C, size) each; return their squared norms, (B,)."""
    membership = F.one_hot(samples.labels, classes).T
    squares = torch.zeros(len(samples), dtype=torch.float64)

    def add(rows: slice, name: str, gradient: Gradient) -> None:
        if name not in group:
            return
        found = dense(gradient).flatten(1)
        squares[rows] += norms(found)
        total = membership[:, rows].to(found.dtype) @ found
        totals[name] = totals[name].add_(total) if name in totals else total

    visit(model, samples, fast, add)
    return squares


def _groups(model: nn.Module, classes: int, memory: int) -> list[frozenset[str]]:
    """Divide the parameters so that one gradient per class of each group fits into memory, at least one in a group."""
    groups: list[list[str]] = [[]]
    used = 0
    for name, parameter in trainable(model).items():
        needed = classes * parameter.numel() * parameter.element_size()
        if groups[-1] and used + needed > memory:
            groups.append([])
            used = 0
        groups[-1].append(name)
        used += needed
    return [frozenset(group) for group in groups]


def _largest(model: nn.Module) -> int:
    """Return the bytes of the largest parameter."""
    return max(p.numel() * p.element_size() for p in trainable(model).values())
