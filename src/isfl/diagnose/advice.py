"""Should I bother? The answer as a pure function of four numbers, with the reason for every threshold.

None of the four depends on Lipschitz values: their gain is theoretical, and on five seeds of the demo's setting
(`results/variants`) sampling by the target alone (`pj-is`) was ahead of plain ISFL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LITTLE = 0.05
"""Squared distance that sampling by class must remove to be worth a trial. The demo has 0.34 to remove, and sampling by
the target changed its balanced accuracy by about one point (`results/variants`). In proportion, 0.05 is a fraction of a
point, which is less than seeds differ by."""
MUCH = 0.2
"""More than half of the distance in the federation that we measured."""
FEW = 0.25
"""Effective share of the samples. Below it, samples repeat more than four times per epoch on average. `tempered`, which
goes only part of the way to the target, keeps twice the effective share there."""
FLOOR = 0.05
"""The larger of the paper's two floors; both do equally well in its tables."""
TARGET_FLOOR = 0.5
"""ISFL with it led plain ISFL on all five seeds (`results/variants`) and was level with sampling by the target."""

Verdict = Literal["no", "maybe", "yes"]
Reason = Literal["even", "out of reach", "some", "much"]


@dataclass(frozen=True)
class Advice:
    """The verdict, its reason, and the lines to write into the configuration."""

    verdict: Verdict
    reason: Reason
    first: str
    """The scheme to try first; it needs no extra gradients."""

    @property
    def first_line(self) -> str:
        """The configuration line of the scheme to try first."""
        return f'scheme = "{self.first}"'

    @property
    def isfl_line(self) -> str:
        """The configuration line of the ISFL variant that did best in our runs."""
        return f'scheme = {{name = "isfl", sampling = {{floor = {FLOOR}, target_floor = {TARGET_FLOOR}}}}}'


def advise(*, distance: float, chance: float, reached: float, effective: float) -> Advice:
    """Decide whether importance sampling is worth a trial.

    Parameters
    ----------
    distance : `sum_k pi_k ||p - p^k||^2`, from the local label mixes to the target.
    chance : the part of it that a random split of the same samples would leave on average.
    reached : the same distance when every client samples by the target among the classes it holds.
    effective : effective sample size of those draws, as a share of all samples.
    """
    beyond_chance = distance - chance
    gain = beyond_chance - reached
    if beyond_chance < LITTLE:
        return Advice("no", "even", "fedavg")
    if gain < LITTLE:
        return Advice("no", "out of reach", "fedavg")
    first = "tempered" if effective < FEW else "pj-is"
    return Advice("yes", "much", first) if gain >= MUCH else Advice("maybe", "some", first)
