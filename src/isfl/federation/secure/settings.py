"""The settings of secure aggregation, and what they demand of a round."""

from __future__ import annotations

import math

from pydantic import Field, field_validator

from isfl.errors import UserError
from isfl.federation.rounding import rounded_up
from isfl.federation.secure.ciphers import check_library
from isfl.schema import Part

FEWEST = 3
"""Updates in a sum: of two, each client could subtract its own."""
LARGEST_SUM = 2**31 - 1
"""Sums are read as signed numbers of 32 bits."""


class SecureAggregation(Part):
    """Masked updates: the server learns their sum, and no single one."""

    threshold: float = Field(
        0.6,
        gt=0.5,
        le=1,
        description="share of a client and its neighbours that must stay until the end of a round; with fewer, the "
        "masks of this client cannot be removed. The same number of clients, colluding with the server, can reveal its "
        "update; fewer suffice if all its other neighbours are lost",
    )
    neighbours: int | None = Field(
        None, ge=2, description="clients with which each client shares masks, an even number; none: with all others"
    )
    range: float = Field(
        4.0,
        gt=0,
        le=1e6,
        description="largest change of one value of the model in one round; larger changes are clipped and counted",
    )
    bits: int = Field(
        24, ge=8, le=30, description="bits of one quantised value; the sum over the clients of a round has 32"
    )

    @field_validator("neighbours")
    @classmethod
    def _even(cls, value: int | None) -> int | None:
        if value is not None and value % 2:
            raise ValueError(f"{value} is odd; a regular graph for any number of clients needs an even number")
        return value

    @property
    def largest(self) -> int:
        """The largest quantised value."""
        return int(2 ** (self.bits - 1)) - 1

    @property
    def step(self) -> float:
        """The change of a weight that one unit of the quantised value stands for."""
        return self.range / self.largest

    def needed(self, holders: int) -> int:
        """Return how many of these holders of shares are needed: more than half, so that never two answers exist."""
        return max(holders // 2 + 1, rounded_up(self.threshold * holders))


def check_participants(secure: SecureAggregation | None, needed: int, asked: int) -> None:
    """Refuse settings that cannot work in a round that asks some clients and closes when the needed ones answered."""
    if secure is None:
        return
    check_library()
    if needed < FEWEST:
        raise UserError(
            f"secure: clients per round: {needed}; a sum hides single updates among at least {FEWEST}: use more "
            "clients or a larger training.participation"
        )
    if needed < secure.needed(asked):
        share = math.floor(1000 * needed / asked) / 1000
        raise UserError(
            f"secure.threshold = {secure.threshold:g} needs {secure.needed(asked)} of {asked} clients, and a round "
            f"closes with {needed} answers; use a smaller stragglers.over_selection"
            + (f", or a threshold of at most {share:g}" if share > 0.5 else "")
        )
    if secure.neighbours is not None and secure.neighbours >= asked:
        raise UserError(
            f"secure.neighbours = {secure.neighbours}, but a round asks {asked} clients; use at most "
            f"{(asked - 1) // 2 * 2}, or leave it out: then each client has all others as neighbours"
        )
    if asked * secure.largest > LARGEST_SUM:
        fitting = int(math.log2(LARGEST_SUM / asked + 1)) + 1
        raise UserError(
            f"secure.bits = {secure.bits}: the sum over {asked} clients could exceed 32 bits; use {fitting} or less"
        )
