"""A check against the public set (ours): leave out the updates without which the mean is better on D_L.

Related: Xie, Koyejo, Gupta, "Zeno: Distributed Stochastic Gradient Descent with Suspicion-based Fault-tolerance", ICML
2019, scores each update alone by the loss after it. On label-skewed clients that hardly tells honest from hostile: an
honest client that holds two classes makes the loss of all others worse, too. What counts is the update among the
others, so this rule compares means with and without it (backward elimination).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from isfl.federation.aggregations.base import Screened, WeightedMean
from isfl.federation.distances import update_norms
from isfl.federation.interface import Server
from isfl.federation.rounding import rounded_up
from isfl.federation.values import ClientUpdate, Weights


class PublicLoss(WeightedMean):
    """The weighted mean of the updates, without those that raise its loss on the public set.

    With `M(S)` the weighted mean of the models of the clients in `S`, and `l` the loss on the public set, a mean over
    its classes: leave out the client for which `l(M(S - k))` is smallest, if that is below `l(M(S))`; repeat, at most
    `f` times. Where nobody does harm, nobody is left out. For `n` clients that takes at most
    `1 + n + (n - 1) + ... + (n - f + 1)` forward passes of the public set, and nothing from clients.
    """

    rule: Literal["public-loss"] = "public-loss"
    hostile: float = Field(0.2, ge=0, lt=0.5, description="largest share of a round's clients to leave out, rounded up")

    def screen(self, current: Weights, updates: Sequence[ClientUpdate], server: Server) -> Screened:
        lengths = update_norms(updates, current, server.facts.parameters)
        length_of = {update.client: length for update, length in zip(updates, lengths, strict=True)}
        kept, left_out, passes = list(updates), dict[int, str](), 1
        loss = self._loss(current, kept, server)
        for _ in range(min(rounded_up(self.hostile * len(updates)), len(updates) - 1)):
            losses = [self._loss(current, _without(kept, k), server) for k in range(len(kept))]
            passes += len(kept)
            # Of several whose absence does not make the loss finite, the longest update goes first.
            worst = min(range(len(kept)), key=lambda k: (losses[k], -length_of[kept[k].client]))
            if losses[worst] >= loss and np.isfinite(loss):
                break
            found = f"left out by public-loss: {loss:.4g} on the public set with it, {losses[worst]:.4g} without"
            left_out[kept[worst].client] = found
            kept, loss = _without(kept, worst), losses[worst]
        return Screened(kept, left_out, passes * server.num_public)

    def _loss(self, current: Weights, updates: Sequence[ClientUpdate], server: Server) -> float:
        """Return the loss of the updates' mean, infinite where it overflows."""
        loss = float(np.nanmean(server.public_loss({**current, **self.combined(updates)})))
        return loss if np.isfinite(loss) else np.inf


def _without(updates: Sequence[ClientUpdate], index: int) -> list[ClientUpdate]:
    return [*updates[:index], *updates[index + 1 :]]
