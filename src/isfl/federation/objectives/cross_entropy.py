"""The plain loss of FedAvg (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from typing import Literal

from isfl.federation.objectives.base import Objective


class CrossEntropy(Objective):
    """The plain loss."""

    kind: Literal["cross-entropy"] = "cross-entropy"
