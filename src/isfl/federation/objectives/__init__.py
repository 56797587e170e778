"""What a client minimises: one file per objective, with its settings, its function and its citation.

To add an objective, write a file with a subclass of `Objective` and add its name to `FILES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isfl.federation.objectives.base import LocalTraining, LossTerm, Objective
from isfl.schema import choices_in, one_of

FILES = (
    "cross_entropy",
    "fedprox",
    "moon",
    "fedlc",
    "fedntd",
)
OBJECTIVES = choices_in(__name__, FILES, Objective)

if TYPE_CHECKING:
    AnyObjective = Objective
else:
    AnyObjective = one_of(OBJECTIVES, "kind")

__all__ = ["OBJECTIVES", "AnyObjective", "LocalTraining", "LossTerm", "Objective"]
