"""Collusion within the honest spread: Baruch, Baruch, Goldberg, "A Little Is Enough: Circumventing Defenses For
Distributed Learning", NeurIPS 2019."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from isfl.federation.attacks.base import HostileShare
from isfl.federation.values import ClientUpdate, Weights


class Collude(HostileShare):
    """Hostile clients all send one model: for each value, the honest mean minus some honest standard deviations.

    `mu_j - z sigma_j` is `z` times as far from the honest mean as honest updates are (root mean square), and hostile
    updates do not differ: distances do not give them away. The paper estimates `mu` and `sigma` from the hostile
    clients' own updates; these know the honest ones, which makes the attack stronger.
    """

    kind: Literal["collude"] = "collude"
    deviations: float = Field(1.5, gt=0, description="z, distance from the honest mean in standard deviations")

    def crafted(
        self,
        hostile: Sequence[ClientUpdate],
        honest: Sequence[ClientUpdate],
        current: Weights,
        parameters: frozenset[str],
    ) -> Sequence[ClientUpdate]:
        models = [update.model for update in honest or hostile]
        agreed = {name: self._shifted([model[name] for model in models]) for name in sorted(parameters)}
        return [replace(update, model=update.model | agreed) for update in hostile]

    def _shifted(self, values: Sequence[Tensor]) -> Tensor:
        stack = torch.stack(list(values)).double()
        return (stack.mean(0) - self.deviations * stack.std(0, correction=0)).to(values[0].dtype)
