"""Augmentation: random changes to the inputs of a training batch. One file per transform.

To add a transform, write a file with a subclass of `Transform` and add its name to `FILES`.

A transform gets a batch of inputs as they are stored (images as bytes, before scaling) and the generator of this seed,
round, client and epoch. While code of the user runs, the global generators are seeded likewise. Transforms are applied
to training batches only: never to the public set, to evaluation or to gradient norms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import Tensor

from isfl.data.dataset import BatchTransform
from isfl.data.transforms.base import Transform
from isfl.errors import UserError
from isfl.randomness import Purpose, generator, global_randomness, torch_generator
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

TRIALS = 4
"""How often a transform of the user is tried with the same seed: it must return the same each time."""

Augmentation = Callable[[int], BatchTransform]
"""From the number of an epoch to the function for its batches, which must be called in order."""


def augmentation(transforms: Sequence[Transform], seed: int, round: int, client: int) -> Augmentation | None:
    """Return the transforms in the order given, for one client's training in one round; None if there are none."""
    if not transforms:
        return None

    def of_epoch(epoch: int) -> BatchTransform:
        place = {"round": round, "client": client, "epoch": epoch}
        of_torch = torch_generator(seed, Purpose.AUGMENTATION, **place)
        seeds = generator(seed, Purpose.GLOBAL_GENERATORS, **place)

        def apply(batch: Tensor) -> Tensor:
            for transform in transforms:
                with global_randomness(int(seeds.integers(2**62))) if transform.own_code else nullcontext():
                    batch = transform.apply(batch, of_torch)
            return batch

        return apply

    return of_epoch


def check_transforms(transforms: Sequence[Transform], inputs: Tensor) -> None:
    """Try the transforms on copies of a few samples: one that does not fit the data fails before the first round."""
    if (augment := augmentation(transforms, 0, 0, 0)) is not None:
        augment(0)(inputs.clone())
    for transform in transforms:
        if transform.own_code:
            _check_no_state(transform, inputs)


def _check_no_state(transform: Transform, inputs: Tensor) -> None:
    alone = augmentation([transform], 0, 0, 0)
    assert alone is not None
    first, *others = (alone(0)(inputs.clone()) for _ in range(TRIALS))
    if not all(torch.equal(first, other) for other in others):
        raise UserError(
            f"training.augment: {transform.label!r} returns different results for the same batch and seed; it must "
            "have no state and no generator of its own (the global ones of torch, numpy and Python are seeded for it)"
        )


__all__ = ["TRANSFORMS", "AnyTransform", "Augmentation", "Transform", "augmentation", "check_transforms"]
