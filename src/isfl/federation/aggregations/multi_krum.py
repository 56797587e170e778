"""Multi-Krum: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent", NeurIPS 2017."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from isfl.federation.aggregations.base import Screened, WeightedMean
from isfl.federation.distances import pairwise_squares
from isfl.federation.interface import Server
from isfl.federation.rounding import rounded_up
from isfl.federation.values import ClientUpdate, Weights
from isfl.theory.arrays import Array


class MultiKrum(WeightedMean):
    """The mean of the updates that have the closest neighbours; `f` of `n` are left out.

    The score of an update is the sum of its squared distances to its `n - f - 2` nearest other updates, over the
    trainable parameters; the `n - f` lowest scores are averaged. The paper asks for `n > 2 f + 2`; with fewer clients
    in a round, `f` is lowered until that holds.
    """

    rule: Literal["multi-krum"] = "multi-krum"
    hostile: float = Field(0.2, ge=0, lt=0.5, description="share of a round's clients to leave out, rounded up")

    def screen(self, current: Weights, updates: Sequence[ClientUpdate], server: Server) -> Screened:
        clients = len(updates)
        left = max(0, min(rounded_up(self.hostile * clients), (clients - 3) // 2))
        if not left:
            return Screened(updates)
        scores = krum_scores(pairwise_squares(updates, current, server.facts.parameters), clients - left - 2)
        order = np.argsort(scores, kind="stable")
        last = scores[order[clients - left - 1]]
        return Screened(
            [updates[i] for i in sorted(order[: clients - left])],
            {
                updates[i].client: f"left out by multi-krum: score {scores[i]:.3g}, others {last:.3g} at most"
                for i in order[clients - left :]
            },
        )


def krum_scores(squares: Array, nearest: int) -> Array:
    """Return (n,) the sum of the `nearest` smallest squared distances of each update to the others."""
    others = squares + np.diag(np.full(len(squares), np.inf))
    return np.sort(others, axis=1)[:, :nearest].sum(axis=1)
