"""Operations on per-sample gradients of one parameter, in any of their forms (ours)."""

from __future__ import annotations

from torch import Tensor

from isfl.smoothness.outer import Outer, norms
from isfl.smoothness.tiled import Blocks, Tiled

Kept = Tensor | Outer | Blocks
"""The forms in which the global model's gradient is kept until it is compared with the local models'."""
Gradient = Kept | Tiled
"""The gradients of one parameter for a batch: (B, *parameter shape), or their factors."""


def dense(gradient: Gradient) -> Tensor:
    """Return the gradients as one tensor, (B, *parameter shape)."""
    return gradient if isinstance(gradient, Tensor) else gradient.dense()


def total(a: Gradient, b: Gradient) -> Gradient:
    """Return the sum of the gradients of two calls of one layer."""
    return a + b if isinstance(a, Outer) and isinstance(b, Outer) else dense(a) + dense(b)


def kept(gradient: Gradient) -> Kept:
    """Return the form in which a gradient is kept to be compared with others."""
    return gradient if isinstance(gradient, Tensor) else gradient.kept()


def squared_norms(gradient: Gradient) -> Tensor:
    """Return `||G_b||^2`, (B,), in double precision on the CPU."""
    return norms(gradient) if isinstance(gradient, Tensor) else gradient.squared_norms()


def squared_differences(ours: Gradient, theirs: Gradient) -> Tensor:
    """Return `||G_b - H_b||^2`, (B,), in double precision on the CPU; fast if `theirs` comes from `kept`."""
    if isinstance(ours, Tiled) and isinstance(theirs, Blocks):
        return ours.squared_differences(theirs)
    if isinstance(ours, Outer) and isinstance(theirs, Tensor | Outer):
        return ours.squared_differences(theirs)
    return norms(dense(ours) - dense(theirs))
