"""Should I bother? The answer as a pure function of four numbers, with the reason for every threshold.

None of them looks at Lipschitz values: what they promise is theory, and on five seeds of the demo's setting
(`results/variants`) drawing by the target alone (`pj-is`) was ahead of plain ISFL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LITTLE = 0.05
"""Squared distance that drawing by class must take away to be worth a trial. The demo has 0.34 to take away, and
drawing by the target changed its balanced accuracy by about one point (`results/variants`): in proportion 0.05 is a
fraction of a point, and seeds differ by more."""
MUCH = 0.2
"""From here on, a federation is like the one we measured: more than half of its distance."""
FEW = 0.25
"""Effective share of the samples below which samples are repeated more than four times an epoch on average. `tempered`,
which goes only part of the way to the target, keeps twice the effective share there."""
FLOOR = 0.05
"""The larger of the paper's two floors, which are level in its tables."""
TARGET_FLOOR = 0.5
"""ISFL with it was ahead of plain ISFL on all five seeds (`results/variants`), and level with drawing by the target."""

Verdict = Literal["no", "maybe", "yes"]
Reason = Literal["even", "out of reach", "some", "much"]


@dataclass(frozen=True)
class Advice:
    """Whether to bother, why, and what to write into the configuration."""

    verdict: Verdict
    reason: Reason
    first: str
    """The scheme to try first: it costs no gradient."""

    @property
    def first_line(self) -> str:
        """For the configuration."""
        return f'scheme = "{self.first}"'

    @property
    def isfl_line(self) -> str:
        """ISFL as it did best in our runs."""
        return f'scheme = {{name = "isfl", sampling = {{floor = {FLOOR}, target_floor = {TARGET_FLOOR}}}}}'


def advise(*, distance: float, chance: float, reached: float, effective: float) -> Advice:
    """Whether importance sampling is worth a trial.

    Parameters
    ----------
    distance : `sum_k pi_k ||p - p^k||^2`, from the local mixes to the target.
    chance : the part of it that a random deal of the same samples would leave on average.
    reached : the same distance when every client draws by the target among the classes it holds.
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
