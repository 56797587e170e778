"""Augmentation: random changes to the inputs of a training batch.

A transform sees a batch of inputs as they are stored (images as bytes, before scaling) and a generator of its own for
this seed, round, client and epoch. It is applied to training batches only: never to the public set, to evaluation or
to gradient norms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, assert_never

import torch
import torch.nn.functional as F
from pydantic import BeforeValidator, Field
from torch import Tensor

from isfl.data.dataset import BatchTransform
from isfl.data.own import call, resolve
from isfl.errors import UserError
from isfl.randomness import Purpose, torch_generator
from isfl.schema import Part


class Crop(Part):
    """Pad images with zeros (black, for images of bytes) and cut a window of the old size at a random place."""

    kind: Literal["crop"] = "crop"
    padding: int = Field(4, ge=1, le=1000, description="pixels added on every side before the window is cut")


class Flip(Part):
    """Mirror an image left to right with a given probability."""

    kind: Literal["flip"] = "flip"
    probability: float = Field(0.5, gt=0, le=1, description="share of the images that is mirrored")


class OwnTransform(Part):
    """A function of yours: `function(batch, generator)` returns a batch of the same shape and type."""

    kind: Literal["own"] = "own"
    function: str = Field(pattern=r"^[\w.]+:\w+$", description="`module:function`")


def _from_word(given: Any) -> Any:
    """`"crop"` is short for `{kind = "crop"}`, `"module:function"` for `{kind = "own", function = ...}`."""
    if not isinstance(given, str):
        return given
    return {"kind": "own", "function": given} if ":" in given else {"kind": given}


Transform = Annotated[
    Annotated[Crop | Flip | OwnTransform, Field(discriminator="kind")],
    BeforeValidator(_from_word),
]

Augmentation = Callable[[int], BatchTransform]
"""From the number of an epoch to what is done to its batches, one after the other."""

_Function = Callable[[Tensor, torch.Generator], Tensor]


def augmentation(transforms: Sequence[Transform], seed: int, round: int, client: int) -> Augmentation | None:
    """The transforms in the order given, for one client's training in one round; None where there are none."""
    if not transforms:
        return None
    functions = [_function(transform) for transform in transforms]

    def of_epoch(epoch: int) -> BatchTransform:
        generator = torch_generator(seed, Purpose.AUGMENTATION, round=round, client=client, epoch=epoch)

        def transform(batch: Tensor) -> Tensor:
            for function in functions:
                batch = function(batch, generator)
            return batch

        return transform

    return of_epoch


def check_transforms(transforms: Sequence[Transform], inputs: Tensor) -> None:
    """Try the transforms on copies of a few samples: what does not fit the data fails before the first round."""
    if (augment := augmentation(transforms, 0, 0, 0)) is not None:
        augment(0)(inputs.clone())


def crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """(N, C, H, W) windows of the padded images, each at its own random place."""
    count, _, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    top, left = torch.randint(2 * padding + 1, (2, count), generator=generator)
    # Every window as a view, without copying: (N, C, H', W', H, W); one per image is then picked.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(count), :, top, left]


def flip(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """(N, C, H, W) images, each mirrored left to right with this probability."""
    chosen = torch.rand(len(images), generator=generator) < probability
    return torch.where(chosen[:, None, None, None], images.flip(3), images)


def _function(transform: Transform) -> _Function:
    match transform:
        case Crop(padding=padding):
            return lambda batch, generator: crop(_images(batch, "crop"), padding, generator)
        case Flip(probability=probability):
            return lambda batch, generator: flip(_images(batch, "flip"), probability, generator)
        case OwnTransform(function=reference):
            return _own(reference)
        case _:
            assert_never(transform)


def _images(batch: Tensor, name: str) -> Tensor:
    if batch.dim() != 4:
        raise UserError(
            f"training.augment: {name!r} needs images (channels, height, width), the data has inputs of shape "
            f"{tuple(batch.shape[1:])}"
        )
    return batch


def _own(reference: str) -> _Function:
    """The user's function, with what it returns checked on every batch."""
    key = f"training.augment: {reference!r}"
    function = resolve(reference, "training.augment")

    def checked(batch: Tensor, generator: torch.Generator) -> Tensor:
        result = call(function, key, batch, generator)
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

    return checked
