"""How a client draws its samples: one file per rule, with its settings, its function and its citation.

To add a rule, write a file with a subclass of `SamplingRule` and add its name to `FILES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isfl.federation.sampling_rules.base import Draws, Known, LocalData, SamplingRule, Stream
from isfl.schema import choices_in, one_of

FILES = (
    "shuffle",
    "uniform",
    "target",
    "tempered",
    "shrunk",
    "capped",
    "bias_variance",
    "gradient_norm",
    "isfl",
)
RULES = choices_in(__name__, FILES, SamplingRule)

if TYPE_CHECKING:
    Sampling = SamplingRule
else:
    Sampling = one_of(RULES, "rule")

__all__ = ["RULES", "Draws", "Known", "LocalData", "Sampling", "SamplingRule", "Stream"]
