"""Model replacement: Bagdasaryan, Veit, Hua, Estrin, Shmatikov, "How To Backdoor Federated Learning", AISTATS 2020."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from isfl.data.dataset import Dataset
from isfl.federation.attacks.base import HostileShare, moved
from isfl.federation.attacks.label_flip import flipped
from isfl.federation.values import ClientUpdate, Weights


class Replace(HostileShare):
    """Hostile clients train on flipped labels and boost what they send, so that it replaces the average.

    They send `theta + (n / m) (theta^k - theta)`, with `m` of the `n` clients of a round hostile: where the honest
    updates cancel, the mean is the hostile clients' own model.
    """

    kind: Literal["replace"] = "replace"

    def poisoned(self, data: Dataset) -> Dataset:
        return flipped(data)

    def crafted(
        self,
        hostile: Sequence[ClientUpdate],
        honest: Sequence[ClientUpdate],
        current: Weights,
        parameters: frozenset[str],
    ) -> Sequence[ClientUpdate]:
        boost = (len(hostile) + len(honest)) / len(hostile)
        return [moved(update, current, parameters, boost) for update in hostile]
