"""Gradients of single samples with respect to one parameter, in whatever form they come."""

from __future__ import annotations

from torch import Tensor

from isfl.smoothness.outer import Outer, norms
from isfl.smoothness.tiled import Blocks, Tiled

Kept = Tensor | Outer | Blocks
"""What the global model's gradient waits in for those of the local models."""
Gradient = Kept | Tiled
"""Of one parameter, for every sample of a batch: (B, *parameter shape), or what it is the product of."""


def dense(gradient: Gradient) -> Tensor:
    """(B, *parameter shape)."""
    return gradient if isinstance(gradient, Tensor) else gradient.dense()


def total(a: Gradient, b: Gradient) -> Gradient:
    """Of two uses of one layer."""
    return a + b if isinstance(a, Outer) and isinstance(b, Outer) else dense(a) + dense(b)


def kept(gradient: Gradient) -> Kept:
    return gradient if isinstance(gradient, Tensor) else gradient.kept()


def squared_norms(gradient: Gradient) -> Tensor:
    """(B,) `||G_b||^2`, in double precision on the CPU."""
    return norms(gradient) if isinstance(gradient, Tensor) else gradient.squared_norms()


def squared_differences(ours: Gradient, theirs: Gradient) -> Tensor:
    """(B,) `||G_b - H_b||^2` in double precision on the CPU; fast for `theirs` as `kept` made it."""
    if isinstance(ours, Tiled) and isinstance(theirs, Blocks):
        return ours.squared_differences(theirs)
    if isinstance(ours, Outer) and isinstance(theirs, Tensor | Outer):
        return ours.squared_differences(theirs)
    return norms(dense(ours) - dense(theirs))
