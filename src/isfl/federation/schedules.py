"""How the clients' learning rate changes over rounds."""

from __future__ import annotations

import math
from typing import Annotated, Literal, assert_never

from pydantic import Field

from isfl.schema import Part, default_choice


class Constant(Part):
    """The same learning rate in every round, as in the paper."""

    kind: Literal["constant"] = "constant"


class Step(Part):
    """Multiply the learning rate by `factor` after every `every` rounds."""

    kind: Literal["step"] = "step"
    every: int = Field(8, ge=1, description="rounds between two steps")
    factor: float = Field(0.5, gt=0, le=1, description="what a step multiplies the learning rate by")


class Cosine(Part):
    """Half a cosine wave from the learning rate in the first round towards `last` times it after the last one."""

    kind: Literal["cosine"] = "cosine"
    last: float = Field(0.0, ge=0, le=1, description="share of the learning rate that is left in the end")


Schedule = Annotated[
    Annotated[Constant | Step | Cosine, Field(discriminator="kind")],
    default_choice("kind", "step"),
]


def learning_rate_factor(schedule: Schedule, round: int, rounds: int) -> float:
    """What the learning rate is multiplied by in `round` (from 1 on) of `rounds`."""
    match schedule:
        case Constant():
            return 1.0
        case Step(every=every, factor=factor):
            return float(factor ** ((round - 1) // every))
        case Cosine(last=last):
            return last + (1.0 - last) * (1.0 + math.cos(math.pi * (round - 1) / rounds)) / 2.0
        case _:
            assert_never(schedule)
