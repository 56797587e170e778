"""Should I bother? The answer as a pure function of four distances, with the reason for every threshold.

None of them depends on Lipschitz values: their gain is theoretical, and on five seeds of the demo's setting
(`results/variants`) sampling by the target alone (`pj-is`) was ahead of plain ISFL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from isfl.diagnose.evidence import RECOMMENDED, Expected, expected_gain

LITTLE = 0.05
"""Squared distance that sampling by class must remove to be worth a trial: a seventh of the demo's."""
WORTH = 1.0
"""Points: a smaller gain is within what seeds differ by (`results/policy-skew-half-published`)."""
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
    expected: Expected
    """What the recommended scheme can be expected to gain over FedAvg."""

    @property
    def first_line(self) -> str:
        """The configuration line of the scheme to try first."""
        return f'scheme = "{self.first}"'

    @property
    def isfl_line(self) -> str:
        """The configuration line of the ISFL variant that did best in our runs."""
        return f'scheme = {{name = "isfl", sampling = {{floor = {FLOOR}, target_floor = {TARGET_FLOOR}}}}}'


def advise(*, distance: float, chance: float, reached: float, skew: float) -> Advice:
    """Decide whether sampling by class is worth a trial.

    Parameters
    ----------
    distance : `sum_k pi_k ||p - p^k||^2`, from the local label mixes to the target.
    chance : the part of it that a random split of the same samples would leave on average.
    reached : the same distance when every client samples by the target among the classes it holds.
    skew : the distance between clients, as `skew_beyond_chance` returns it; gains were measured by it.
    """
    beyond_chance = distance - chance
    expected = expected_gain(skew)
    if beyond_chance < LITTLE:
        return Advice("no", "even", "fedavg", expected)
    if beyond_chance - reached < LITTLE:
        return Advice("no", "out of reach", "fedavg", expected)
    if expected.gain < WORTH:
        return Advice("maybe", "some", RECOMMENDED, expected)
    return Advice("yes", "much", RECOMMENDED, expected)
