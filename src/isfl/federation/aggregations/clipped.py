"""Norm clipping: Sun, Kairouz, Suresh, McMahan, "Can You Really Backdoor Federated Learning?", 2019.

The median of the norms as the limit is ours: it needs no tuning, and hostile clients that are fewer than half cannot
raise it above the largest honest norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from isfl.federation.aggregations.base import Screened, WeightedMean
from isfl.federation.distances import update_norms
from isfl.federation.interface import Server
from isfl.federation.values import ClientUpdate, Weights


class Clipped(WeightedMean):
    """The weighted mean of updates that are shortened to a largest norm.

    `theta + sum_k pi_k min(1, c / ||u_k||) u_k` with `u_k = theta^k - theta`. BatchNorm statistics are shortened in the
    same way, by the median of their own norms.
    """

    rule: Literal["clipped"] = "clipped"
    norm: float | None = Field(
        None, gt=0, description="c, the largest norm of an update; none: the median of the clients' norms in the round"
    )

    def screen(self, current: Weights, updates: Sequence[ClientUpdate], server: Server) -> Screened:
        floating = {name for name, value in updates[0].model.items() if value.is_floating_point()}
        parameters = floating & server.facts.parameters
        models = [dict(update.model) for update in updates]
        for names, limit in ((parameters, self.norm), (floating - parameters, None)):
            norms = update_norms(updates, current, names)
            largest = float(np.median(norms)) if limit is None else limit
            for model, norm in zip(models, norms, strict=True):
                if norm > largest:
                    model |= {name: _towards(current[name], model[name], largest / norm) for name in names}
        return Screened([replace(update, model=model) for update, model in zip(updates, models, strict=True)])


def _towards(start: Tensor, end: Tensor, share: float) -> Tensor:
    """Return the point that lies this share of the way from `start` to `end`."""
    return (start.double() + share * (end.double() - start.double())).to(end.dtype)
