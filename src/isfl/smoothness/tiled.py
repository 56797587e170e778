"""Per-sample weight gradients of the 3x3 convolutions of `isfl.kernels`, with a quarter of the multiplications.

Minimal filtering: S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, Fast Algorithms for
Convolutional Neural Networks, CVPR 2016. Its use for per-sample gradients is ours. The norm of a difference is computed
without writing the gradient to memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from isfl.kernels.library import CHANNELS, as_images
from isfl.kernels.tiles import squared_differences, weight_gradients
from isfl.smoothness.outer import norms


@dataclass(frozen=True)
class Blocks:
    """(B, O, C, 3, 3) gradients in the memory order in which they are compared."""

    values: Tensor
    """(B, O / lanes, C / rows, 9, rows, lanes); rows after the last input are zero."""
    inputs: int

    def dense(self) -> Tensor:
        batch, outer, inner, _, rows, lanes = self.values.shape
        whole = self.values.permute(0, 1, 5, 2, 4, 3).reshape(batch, outer * lanes, inner * rows, 3, 3)
        return whole[:, :, : self.inputs]

    def kept(self) -> Blocks:
        return self

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def squared_norms(self) -> Tensor:
        return norms(self.values)


@dataclass(frozen=True)
class Tiled:
    """(B, O, C, 3, 3) gradients as their factors."""

    images: Tensor
    """(B, H, W, C) input of the layer, perhaps padded with channels of zeros."""
    inputs: int
    """The number of channels without the padding."""
    gradients: Tensor
    """(B, H, W, O) gradients at the output."""
    scale: Tensor | None = None
    """(O,) a factor for each output's gradient."""

    def dense(self) -> Tensor:
        return self.kept().dense()

    def kept(self) -> Blocks:
        """Return the form in which the gradient is kept to be compared with others."""
        return Blocks(weight_gradients(self.gradients, self.images, self.scale), self.inputs)

    def squared_norms(self) -> Tensor:
        """Return `||G_b||^2`, (B,), in double precision."""
        return squared_differences(self.gradients, self.images, None, self.scale)

    def squared_differences(self, theirs: Blocks) -> Tensor:
        """Return `||G_b - H_b||^2`, (B,), in double precision."""
        return squared_differences(self.gradients, self.images, theirs.values, self.scale)


def tiled(x: Tensor, grad: Tensor, scale: Tensor | None = None) -> Tiled:
    """Return the gradients from the layer's input (B, C, H, W) and the gradient at its output (B, O, H, W)."""
    images, inputs = as_images(x), x.shape[1]
    if missing := -inputs % CHANNELS:
        images = F.pad(images, (0, missing))
    return Tiled(images, inputs, as_images(grad), scale)
