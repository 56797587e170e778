"""Scaling: Bhagoji, Chakraborty, Mittal, Calo, "Analyzing Federated Learning through an Adversarial Lens", ICML 2019.

They boost an update so that it outweighs the others; here the boosted update is an honest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from isfl.federation.attacks.base import HostileShare, moved
from isfl.federation.values import ClientUpdate, Weights


class Scale(HostileShare):
    """Hostile clients train honestly and send `theta + factor (theta^k - theta)`."""

    kind: Literal["scale"] = "scale"
    factor: float = Field(10.0, gt=1, description="how many times its update a hostile client sends")

    def crafted(
        self,
        hostile: Sequence[ClientUpdate],
        honest: Sequence[ClientUpdate],
        current: Weights,
        parameters: frozenset[str],
    ) -> Sequence[ClientUpdate]:
        return [moved(update, current, parameters, self.factor) for update in hostile]
