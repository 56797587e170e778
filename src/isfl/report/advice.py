"""Should I bother? The answer as a pure function of four numbers, with the reason for every threshold.

None of them looks at Lipschitz values: what they promise is theory, and in the tables of `docs/results.md` drawing by
the target alone (`pj-is`) is behind plain ISFL in none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LITTLE = 0.05
"""Squared distance that drawing by class must take away to be worth a trial. The runs in `results/table2-quick` have
0.29 and 0.31 to take away, and drawing by the target changed the balanced accuracy by little more than two points:
in proportion 0.05 is less than half a point, and seeds differ by more."""
MUCH = 0.2
"""From here on, a federation is like the ones we measured: two thirds of the less skewed of them."""
FEW = 0.25
"""Effective share of the samples below which rare samples are repeated very often. In both measured federations it is
0.12 or less, and there `tempered`, which goes only part of the way, was ahead of drawing by the target."""
FLOOR = 0.05
"""The paper's floors 0.05 and 0.01 are level there; in our runs 0.05 was ahead in both federations."""
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
