"""A transform from the user's own code."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from isfl.data.own import call, resolve
from isfl.data.transforms.base import Transform
from isfl.errors import UserError


class OwnTransform(Transform):
    """Your own function: `function(batch, generator)` returns a batch of the same shape and type."""

    kind: Literal["own"] = "own"
    function: str = Field(pattern=r"^[\w.]+:\w+$", description="`module:function`")

    def apply(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        key = f"training.augment: {self.function!r}"
        result = call(resolve(self.function, "training.augment"), key, batch, generator)
        if not isinstance(result, Tensor):
            raise UserError(f"{key}: it returned {type(result).__name__}; it should return a tensor")
        if result.shape != batch.shape or result.dtype != batch.dtype:
            raise UserError(
                f"{key}: it turned a batch of {batch.dtype} {tuple(batch.shape)} into {result.dtype} "
                f"{tuple(result.shape)}; it should keep type and shape"
            )
        if result.is_floating_point() and not bool(torch.isfinite(result).all()):
            raise UserError(f"{key}: it returned values that are not finite")
        return result
