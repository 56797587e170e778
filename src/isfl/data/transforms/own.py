"""A transform from the user's own code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Literal, assert_never

import torch
from pydantic import Field
from torch import Tensor, nn

from isfl.data.own import call, resolve
from isfl.data.transforms.base import Transform
from isfl.errors import UserError

REQUIRED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class OwnTransform(Transform):
    """Your own callable: from a batch, or from a sample, to one of the same shape and type."""

    kind: Literal["own"] = "own"
    function: str = Field(pattern=r"^[\w.]+:\w+$", description="`module:function`, or any other callable of a module")
    per: Literal["batch", "sample"] = Field("batch", description="what it is called with, one at a time")

    own_code: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return self.function

    def apply(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        function = resolve(self.function, "training.augment")
        more = (generator,) if takes_generator(function) else ()
        match self.per:
            case "batch":
                return self._checked(function, batch, *more)
            case "sample":
                return torch.stack([self._checked(function, sample, *more) for sample in batch])
            case _:
                assert_never(self.per)

    def _checked(self, function: Callable[..., Any], given: Tensor, *more: torch.Generator) -> Tensor:
        key = f"training.augment: {self.function!r}"
        result = call(function, key, given, *more)
        if not isinstance(result, Tensor):
            raise UserError(f"{key}: it returned {type(result).__name__}; it should return a tensor")
        if result.shape != given.shape or result.dtype != given.dtype:
            raise UserError(
                f"{key}: it turned a {self.per} of {given.dtype} {tuple(given.shape)} into {result.dtype} "
                f"{tuple(result.shape)}; it should keep type and shape"
            )
        if result.is_floating_point() and not bool(torch.isfinite(result).all()):
            raise UserError(f"{key}: it returned values that are not finite")
        return result


def takes_generator(function: Any) -> bool:
    """Return whether a callable has a second required argument, or one called `generator`."""
    try:
        parameters = inspect.signature(function.forward if isinstance(function, nn.Module) else function).parameters
    except (TypeError, ValueError):  # not a callable, or one without a signature
        return False
    required = [p for p in parameters.values() if p.kind in REQUIRED and p.default is inspect.Parameter.empty]
    return len(required) > 1 or "generator" in parameters
