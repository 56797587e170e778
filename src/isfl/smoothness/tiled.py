"""Per-sample weight gradients of the 3x3 convolutions of `isfl.kernels`, with a quarter of the multiplications.

Where only the norm of a difference is wanted, a gradient is never written down.
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
    """(B, O, C, 3, 3) gradients in the order in which they are compared."""

    values: Tensor
    """(B, O / lanes, C / rows, 9, rows, lanes); rows behind the last input are zero."""
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
    """(B, O, C, 3, 3) gradients, not multiplied out."""

    images: Tensor
    """(B, H, W, C) that went into the layer, perhaps with more channels of zeros."""
    inputs: int
    """Channels without those."""
    gradients: Tensor
    """(B, H, W, O) of what came out."""
    scale: Tensor | None = None
    """(O,) that every output's gradient is to be multiplied by."""

    def dense(self) -> Tensor:
        return self.kept().dense()

    def kept(self) -> Blocks:
        """The form in which a gradient waits to be compared."""
        return Blocks(weight_gradients(self.gradients, self.images, self.scale), self.inputs)

    def squared_norms(self) -> Tensor:
        """(B,) `||G_b||^2`, in double precision."""
        return squared_differences(self.gradients, self.images, None, self.scale)

    def squared_differences(self, theirs: Blocks) -> Tensor:
        """(B,) `||G_b - H_b||^2` in double precision."""
        return squared_differences(self.gradients, self.images, theirs.values, self.scale)


def tiled(x: Tensor, grad: Tensor, scale: Tensor | None = None) -> Tiled:
    """Of what went in (B, C, H, W) and the gradient of what came out (B, O, H, W)."""
    images, inputs = as_images(x), x.shape[1]
    if missing := -inputs % CHANNELS:
        images = F.pad(images, (0, missing))
    return Tiled(images, inputs, as_images(grad), scale)
