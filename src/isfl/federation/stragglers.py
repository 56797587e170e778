"""Stragglers: a round asks more clients than it needs and closes without the slow ones.

K. Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys 2019. A round that needs `m` answers
asks

    n = ceil(m (1 + over_selection))

clients. It closes with the m-th usable answer, at the deadline, or when every client that was asked has answered,
whichever is first. Answers after that are late: what they cost is counted, and nothing else of them is used.

In a simulation the latency of client k in round r is log-normal,

    seconds = median exp(client_spread z_k + spread z_kr),    z_k, z_kr ~ N(0, 1),

a function of (seed, round, client). With real clients the wall clock decides.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pydantic import Field, model_validator

from isfl.errors import UserError
from isfl.federation.rounding import rounded_up
from isfl.randomness import Purpose, generator
from isfl.schema import Part

FASTEST = 5.0
"""Standard deviations of the logarithm: about one answer in three million is faster than that."""


class Latency(Part):
    """How long simulated clients take from the task to their answer; real clients cannot have this table."""

    median: float = Field(gt=0, le=1e9, description="seconds in which half of the answers arrive")
    spread: float = Field(
        0.5, ge=0, le=10, description="standard deviation, from round to round, of the logarithm of the latency"
    )
    client_spread: float = Field(
        0.0, ge=0, le=10, description="likewise from client to client: with it, the same clients are slow in all rounds"
    )
    never: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="probability that a client does not answer in a round at all; such a client does not train, and "
        "the round needs a `deadline`",
    )

    def seconds(self, of_client: np.random.Generator, of_round: np.random.Generator) -> float:
        """Return when an answer arrives, counted from the moment the tasks are sent; inf: never."""
        if of_round.random() < self.never:
            return math.inf
        shift = self.client_spread * of_client.standard_normal() + self.spread * of_round.standard_normal()
        return self.median * math.exp(shift)


class Stragglers(Part):
    """Rounds that do not wait for slow clients. `late` in the metrics names the clients a round closed without."""

    deadline: float | None = Field(
        None,
        gt=0,
        description="seconds after which a round closes with the answers it has. For real clients, measuring Lipschitz "
        "values, evaluation, and introductions after the first round each have the same limit. Without it, a round "
        "waits for its answers, those of real clients up to `flower.reply_seconds`",
    )
    over_selection: float = Field(
        0.0,
        ge=0,
        le=100,
        description="share of additional clients that a round asks; it closes when as many have answered as "
        "`training.participation` says",
    )
    simulated: Latency | None = Field(None, description="without this table, simulated clients answer in random order")

    @model_validator(mode="after")
    def _closes(self) -> Stragglers:
        latency = self.simulated
        if latency is None:
            return self
        if self.deadline is None and latency.never > 0:
            raise ValueError(
                f"stragglers.simulated.never = {latency.never:g} needs stragglers.deadline: a round would wait forever "
                "for clients that never answer"
            )
        fastest = latency.median * math.exp(-FASTEST * math.hypot(latency.spread, latency.client_spread))
        if self.deadline is not None and self.deadline < fastest:
            raise ValueError(
                f"stragglers.deadline = {self.deadline:g}: no client answers that soon with "
                f"stragglers.simulated.median = {latency.median:g}; use more than {fastest:.3g}"
            )
        return self


class Arrival(NamedTuple):
    """When an answer arrives; compared in this order."""

    seconds: float
    order: float
    """Decides between answers of the same moment."""


@dataclass(frozen=True)
class Closing:
    """How a round ended."""

    seconds: float
    late: frozenset[int]
    """The clients whose answers were not there by then."""


def asked_count(stragglers: Stragglers | None, needed: int, clients: int) -> int:
    """Return how many clients a round asks that needs this many answers: never more than there are."""
    share = 0.0 if stragglers is None else stragglers.over_selection
    return min(clients, rounded_up(needed * (1 + share)))


def arrivals(stragglers: Stragglers, seed: int, round: int, clients: Iterable[int]) -> dict[int, Arrival]:
    """Return when the simulated answers of these clients arrive; all at once, in random order, without latencies."""
    arrived = {}
    for client in clients:
        of_client, of_round = (generator(seed, Purpose.LATENCY, round=r, client=client) for r in (0, round))
        order, latency = of_round.random(), stragglers.simulated
        arrived[client] = Arrival(0.0 if latency is None else latency.seconds(of_client, of_round), order)
    return arrived


class UsableAnswers:
    """Counts the usable answers of a round in the order they arrive; it closes with the last one that is needed."""

    def __init__(self, needed: int) -> None:
        self.missing = needed

    @property
    def complete(self) -> bool:
        return self.missing == 0

    def heard(self, usable: bool) -> None:
        """Count one more answer of a round that is not closed."""
        self.missing -= usable


def closing(arrived: Mapping[int, Arrival], usable: Collection[int], needed: int, deadline: float | None) -> Closing:
    """Return when a round closes, given the arrivals of all clients asked and which of the answers can be used."""
    answers = UsableAnswers(needed)
    for client in sorted(arrived, key=arrived.__getitem__):
        answers.heard(client in usable)
        if answers.complete:
            break
    end = min(arrived[client], Arrival(math.inf if deadline is None else deadline, math.inf))
    return Closing(end.seconds, frozenset(client for client, arrival in arrived.items() if arrival > end))


def check_deadline(stragglers: Stragglers | None, real_time: bool) -> None:
    """Refuse a deadline that nothing could miss."""
    if stragglers is not None and stragglers.deadline and stragglers.simulated is None and not real_time:
        raise UserError(
            f"stragglers.deadline = {stragglers.deadline:g}: simulated clients answer at once; give them a latency "
            "with [stragglers.simulated], for instance median = 10"
        )
