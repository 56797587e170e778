"""Per-sample weight gradients of the 3x3 convolutions of `isfl.kernels`, with a quarter of the multiplications.

Where only the norm of a difference is wanted, a gradient is never written down.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from isfl.kernels.tiles import squared_differences, weight_gradients
from isfl.smoothness.outer import norms


@dataclass(frozen=True)
class Blocks:
    """(B, O, C, 3, 3) gradients in the order in which they are compared."""

    values: Tensor
    """(B, O / lanes, C / rows, 9, rows, lanes)."""

    def dense(self) -> Tensor:
        batch, outer, inner, _, rows, lanes = self.values.shape
        return self.values.permute(0, 1, 5, 2, 4, 3).reshape(batch, outer * lanes, inner * rows, 3, 3)

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
    """(B, H, W, C) that went into the layer."""
    gradients: Tensor
    """(B, H, W, O) of what came out."""

    def dense(self) -> Tensor:
        return self.kept().dense()

    def kept(self) -> Blocks:
        """The form in which a gradient waits to be compared."""
        return Blocks(weight_gradients(self.gradients, self.images))

    def squared_norms(self) -> Tensor:
        """(B,) `||G_b||^2`, in double precision."""
        return squared_differences(self.gradients, self.images, None)

    def squared_differences(self, theirs: Blocks) -> Tensor:
        """(B,) `||G_b - H_b||^2` in double precision."""
        return squared_differences(self.gradients, self.images, theirs.values)
