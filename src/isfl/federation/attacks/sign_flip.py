"""Sign flipping: Li, Xu, Chen, Giannakis, Ling, "RSA: Byzantine-Robust Stochastic Aggregation Methods for Distributed
Learning from Heterogeneous Datasets", AAAI 2019."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from isfl.federation.attacks.base import HostileShare, moved
from isfl.federation.values import ClientUpdate, Weights


class SignFlip(HostileShare):
    """Hostile clients train honestly and send `theta - strength (theta^k - theta)`.

    With equal weights and the strength `(1 - share) / share`, 4 for a fifth of the clients, they undo on average what
    the others learn.
    """

    kind: Literal["sign-flip"] = "sign-flip"
    strength: float = Field(4.0, gt=0, description="length of what is sent, in lengths of the honest update")

    def crafted(
        self,
        hostile: Sequence[ClientUpdate],
        honest: Sequence[ClientUpdate],
        current: Weights,
        parameters: frozenset[str],
    ) -> Sequence[ClientUpdate]:
        return [moved(update, current, parameters, -self.strength) for update in hostile]
