"""From the clients' models to the next global model: one file per aggregation, with settings, function and citation.

To add an aggregation, write a file with a subclass of `Aggregation` and add its name to `FILES`.

Sums run in double precision and in the order given; `run_round` gives them by client id, so that the result does not
depend on who answered first. Server optimisers move parameters only; BatchNorm statistics are averaged (a running
variance must stay one).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isfl.federation.aggregations.base import Aggregation, Screened
from isfl.federation.values import ClientUpdate, ServerMemory, Weights
from isfl.schema import choices_in, one_of

FILES = (
    "mean",
    "momentum",
    "adam",
    "median",
    "trimmed_mean",
    "clipped",
    "multi_krum",
    "public_loss",
)
AGGREGATIONS = choices_in(__name__, FILES, Aggregation)

if TYPE_CHECKING:
    AnyAggregation = Aggregation
else:
    AnyAggregation = one_of(AGGREGATIONS, "rule")


def aggregate(
    rule: Aggregation,
    current: Weights,
    updates: Sequence[ClientUpdate],
    memory: ServerMemory,
    parameters: frozenset[str],
) -> tuple[Weights, ServerMemory]:
    """The next global model and the server's buffers; `parameters` names what an optimiser may move."""
    combined = rule.combined(updates)
    moved, memory = rule.step(current, combined, memory, parameters & combined.keys())
    return {**current, **combined, **moved}, memory


__all__ = ["AGGREGATIONS", "Aggregation", "AnyAggregation", "Screened", "aggregate"]
