"""The error of class shares that are estimated from the clients seen so far.

The `n` clients seen are a simple random sample of all `K` as long as those chosen answer. Then
`p_i = sum_k n_ki / sum_k n_k` is a ratio estimate, and with `d_ki = n_ki - p_i n_k` and the mean size `m` of a client
its standard error is

    sqrt((1 - n / K) / n * sum_k d_ki^2 / (n - 1)) / m

(W. G. Cochran, "Sampling Techniques", 3rd edition, 1977, Chapter 6). That is 0 for a class that no client seen has.
With 95 % for all `C` classes together, such a class is held by at most this share of the clients:

    log(C / 0.05) / (-K log(1 - n / K)),    close to log(C / 0.05) / n if K is large.

This is the rule of three (J. A. Hanley, A. Lippman-Hand, "If Nothing Goes Wrong, Is Everything All Right?", JAMA 1983),
for `C` classes and a finite number of clients. The bound counts these clients as of mean size, without other classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from isfl.theory.arrays import Array

CONFIDENCE = 0.95
"""Of the bound."""


@dataclass(frozen=True)
class TargetError:
    """How far target shares that were estimated from some of the clients may be from those of all."""

    clients: int
    """Clients seen."""
    standard: Array
    """(C,) standard errors of the shares."""
    unseen: float
    """Bound on the sum of the shares of classes that no client seen has."""

    @property
    def bound(self) -> float:
        """The distance `||p - p_all||_1` that is exceeded with probability `1 - CONFIDENCE` at most, approximately.

        By the normal approximation for each share and the union bound over the `C` of them. What unseen classes lack
        the others have too much, so that it counts twice. No distance is larger than 2.
        """
        quantile = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * len(self.standard)))
        return min(2.0, float(quantile * self.standard.sum()) + 2 * self.unseen)


def estimation_error(counts: Array, num_clients: int) -> TargetError | None:
    """Return the error of the shares that follow from the (n, C) counts of the clients seen; None if it is unknown.

    One client alone does not show how far clients differ, unless there is no other.
    """
    seen, classes = counts.shape
    if seen == num_clients:
        return TargetError(seen, np.zeros(classes), 0.0)
    if seen < 2:
        return None
    sizes, total = counts.sum(axis=1), np.maximum(counts.sum(axis=0), 0.0)
    residuals = counts - sizes[:, None] * total / total.sum()
    variance = (1.0 - seen / num_clients) / seen * (residuals**2).sum(axis=0) / (seen - 1)
    rare = np.log(classes / (1 - CONFIDENCE)) / (-num_clients * np.log1p(-seen / num_clients))
    unseen = min(float(rare) * int((total == 0).sum()), 1.0 - seen / num_clients)
    return TargetError(seen, np.sqrt(variance) / sizes.mean(), unseen)
