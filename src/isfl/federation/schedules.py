"""How the clients' learning rate changes over rounds.

To add a schedule, write a subclass of `Schedule` here and add it to `SCHEDULES`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from isfl.schema import Part, default_choice, one_of


class Schedule(Part):
    """The base of all schedules."""

    kind: str

    @abstractmethod
    def multiplier(self, round: int, rounds: int) -> float:
        """Return the factor on the learning rate in `round` (from 1 on) of `rounds`."""

    def check(self, rounds: int) -> None:
        """Raise a `ValueError` if the schedule makes no sense for this many rounds."""


class Constant(Schedule):
    """The same learning rate in every round, as in the paper."""

    kind: Literal["constant"] = "constant"

    def multiplier(self, round: int, rounds: int) -> float:
        return 1.0


class Step(Schedule):
    """Multiply the learning rate by `factor` after every `every` rounds."""

    kind: Literal["step"] = "step"
    every: int = Field(8, ge=1, description="rounds between two steps")
    factor: float = Field(0.5, gt=0, le=1, description="factor on the learning rate at each step")

    def multiplier(self, round: int, rounds: int) -> float:
        return float(self.factor ** ((round - 1) // self.every))

    def check(self, rounds: int) -> None:
        if self.every >= rounds:
            raise ValueError(
                f"schedule.every is {self.every} and rounds is {rounds}: the learning rate would never change; lower "
                "training.schedule.every or leave training.schedule out"
            )


class Cosine(Schedule):
    """Half a cosine wave from the learning rate in the first round towards `last` times it after the last one.

    Loshchilov, Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017, without restarts.
    """

    kind: Literal["cosine"] = "cosine"
    last: float = Field(0.0, ge=0, le=1, description="share of the learning rate that is left in the end")

    def multiplier(self, round: int, rounds: int) -> float:
        return self.last + (1.0 - self.last) * (1.0 + math.cos(math.pi * (round - 1) / rounds)) / 2.0


SCHEDULES: tuple[type[Schedule], ...] = (
    Constant,
    Step,
    Cosine,
)

if TYPE_CHECKING:
    AnySchedule = Schedule
else:
    AnySchedule = Annotated[one_of(SCHEDULES, "kind"), default_choice("kind", "step")]
