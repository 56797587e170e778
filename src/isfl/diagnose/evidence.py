"""The gain to expect: what the recommended scheme gained over FedAvg in our experiments, where the skew was similar.

`measured.json` has one entry per setting of our experiments (`docs/policy.md`, `docs/results.md`), made from `results/`
by `scripts/write_measured_gains.py`. The prediction is the mean over the nearest settings: T. M. Cover, P. E. Hart,
"Nearest neighbor pattern classification", IEEE Transactions on Information Theory 13(1), 1967.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from isfl.theory.arrays import Array
from isfl.theory.drivers import skew_drivers

RECOMMENDED = "adaptive"
"""The scheme whose gains are listed; `docs/policy.md` has the choice."""
NEAREST = 3
"""Settings that a prediction is the mean of."""


@dataclass(frozen=True)
class Measured:
    """The recommended scheme minus FedAvg on one setting, paired by seed."""

    setting: str
    skew: float
    """Mean over seeds of the squared distance of label mixes, beyond chance."""
    gain: float
    """Points of the mean of D_S and D_G over the last five rounds; mean over seeds."""
    seeds: int
    source: str
    """Directory in `results/`."""


@dataclass(frozen=True)
class Expected:
    """A prediction, and how far to trust it."""

    gain: float
    """Points ahead of FedAvg; the mean over `settings`."""
    settings: tuple[Measured, ...]
    """The measured settings of most similar skew."""
    miss: float
    """Mean absolute error in points when each measured setting is predicted from the others."""

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest gain of the settings."""
        gains = [one.gain for one in self.settings]
        return min(gains), max(gains)


def expected_gain(skew: float, settings: Sequence[Measured] | None = None) -> Expected:
    """Predict the gain of the recommended scheme over FedAvg at a skew, as `skew_beyond_chance` returns it."""
    known = measured() if settings is None else settings
    near = _nearest(skew, known)
    return Expected(_mean(near), near, left_out_error(known))


def left_out_error(settings: Sequence[Measured]) -> float:
    """Return the mean absolute error, in points, when each setting is predicted from those of other names.

    A setting may be there twice, for instance with and without augmentation; neither may predict the other.
    """
    others = [[other for other in settings if other.setting != one.setting] for one in settings]
    misses = [abs(_mean(_nearest(one.skew, known)) - one.gain) for one, known in zip(settings, others, strict=True)]
    return float(np.mean(misses))


def skew_beyond_chance(counts: Array) -> float:
    """Return the squared distance of label mixes minus what a random split of the same samples would have."""
    drivers = skew_drivers(counts)
    return drivers.total - drivers.chance


@cache
def measured() -> tuple[Measured, ...]:
    """Return the measured settings, least skewed first."""
    text = resources.files("isfl.diagnose").joinpath("measured.json").read_text(encoding="utf-8")
    return tuple(Measured(**entry) for entry in json.loads(text))


def _nearest(skew: float, settings: Sequence[Measured]) -> tuple[Measured, ...]:
    return tuple(sorted(settings, key=lambda one: abs(one.skew - skew))[:NEAREST])


def _mean(settings: Sequence[Measured]) -> float:
    return float(np.mean([one.gain for one in settings]))
