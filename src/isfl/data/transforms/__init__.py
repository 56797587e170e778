"""Augmentation: random changes to the inputs of a training batch. One file per transform.

To add a transform, write a file with a subclass of `Transform` and add its name to `FILES`.

A transform gets a batch of inputs as they are stored (images as bytes, before scaling) and the generator of this seed,
round, client and epoch. It is applied to training batches only: never to the public set, to evaluation or to gradient
norms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator
from torch import Tensor

from isfl.data.dataset import BatchTransform
from isfl.data.transforms.base import Transform
from isfl.randomness import Purpose, torch_generator
from isfl.schema import choices_in, one_of

FILES = (
    "crop",
    "flip",
    "own",
)
TRANSFORMS = choices_in(__name__, FILES, Transform)


def _from_word(given: Any) -> Any:
    """Read `"crop"` as `{kind = "crop"}` and `"module:function"` as `{kind = "own", function = ...}`."""
    if not isinstance(given, str):
        return given
    return {"kind": "own", "function": given} if ":" in given else {"kind": given}


if TYPE_CHECKING:
    AnyTransform = Transform
else:
    AnyTransform = Annotated[one_of(TRANSFORMS, "kind"), BeforeValidator(_from_word)]

Augmentation = Callable[[int], BatchTransform]
"""From the number of an epoch to the function for its batches, which must be called in order."""


def augmentation(transforms: Sequence[Transform], seed: int, round: int, client: int) -> Augmentation | None:
    """Return the transforms in the order given, for one client's training in one round; None if there are none."""
    if not transforms:
        return None

    def of_epoch(epoch: int) -> BatchTransform:
        generator = torch_generator(seed, Purpose.AUGMENTATION, round=round, client=client, epoch=epoch)

        def apply(batch: Tensor) -> Tensor:
            for transform in transforms:
                batch = transform.apply(batch, generator)
            return batch

        return apply

    return of_epoch


def check_transforms(transforms: Sequence[Transform], inputs: Tensor) -> None:
    """Try the transforms on copies of a few samples: one that does not fit the data fails before the first round."""
    if (augment := augmentation(transforms, 0, 0, 0)) is not None:
        augment(0)(inputs.clone())


__all__ = ["TRANSFORMS", "AnyTransform", "Augmentation", "Transform", "augmentation", "check_transforms"]
