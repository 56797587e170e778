"""Label flipping: Tolpegin, Truex, Gursoy, Liu, "Data Poisoning Attacks Against Federated Learning Systems", ESORICS
2020; the map of labels is that of Fang, Cao, Jia, Gong, "Local Model Poisoning Attacks to Byzantine-Robust Federated
Learning", USENIX Security 2020."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from isfl.data.dataset import Dataset
from isfl.federation.attacks.base import HostileShare


class LabelFlip(HostileShare):
    """Hostile clients train on the label `C - 1 - y` in place of `y`, and send what they have learned."""

    kind: Literal["label-flip"] = "label-flip"

    def poisoned(self, data: Dataset) -> Dataset:
        return flipped(data)


def flipped(data: Dataset) -> Dataset:
    """Return the samples with the labels in reverse order: 0 is the last class."""
    return replace(data, labels=data.num_classes - 1 - data.labels)
