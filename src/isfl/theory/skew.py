"""How skewed the labels are: measures of a matrix of class counts.

Hellinger and total variation distance are the textbook definitions; the effective sample size is that of importance
sampling, L. Kish, Survey Sampling, 1965.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isfl.theory.arrays import Array, ArrayLike, first, matrix, rows, same_width, shares


@dataclass(frozen=True)
class SkewCard:
    """Distances of each client's label mix from the global one; arrays of shape (K,)."""

    samples: Array
    hellinger: Array
    """`sqrt(1 - sum_i sqrt(p_i p^k_i))`: 0 for the same mix, 1 for no class in common."""
    total_variation: Array
    """`1/2 sum_i |p_i - p^k_i|`: the share of samples that would have to change class."""
    missing: Array
    """The number of classes of the federation that the client does not hold."""
    effective_size: Array
    """Effective sample size when the client draws by the global mix (restricted to its classes)."""


def class_counts(counts: ArrayLike) -> Array:
    """Return a (K, C) matrix of non-negative integers with at least one sample per client, or raise a ValueError."""
    array = matrix("counts", counts)
    bad = ~(np.isfinite(array) & (array >= 0) & (array == np.floor(array)))
    if bad.any():
        raise ValueError(f"counts{first(bad)} is {array[bad][0]}: counts are whole numbers, not negative")
    empty = array.sum(axis=1) == 0
    if empty.any():
        raise ValueError(f"counts{first(empty)} sums to 0: every client needs at least one sample")
    return array


def effective_sample_size(counts: ArrayLike, probabilities: ArrayLike) -> Array:
    """Return `(sum_j w_j)^2 / sum_j w_j^2` over a client's samples, (K,), if class `i` has probability `q_i`.

    With `w = q_i / p^k_i` for a sample of class `i` this is `n / sum_i (q_i^2 / p^k_i)`: equal to `n` for
    `q = p^k`, and close to the size of a rare class when that class is drawn most of the time.

    Parameters
    ----------
    counts
        (C,) or (K, C), samples per class of every client.
    probabilities
        (C,) or (K, C), the sampling probabilities `q`; zero for classes without samples.

    Returns
    -------
    Array
        (K,).

    Raises
    ------
    ValueError
        If a count is not a whole number, a client has no samples, or a class without samples would be drawn.

    Examples
    --------
    >>> from isfl.theory import effective_sample_size
    >>> effective_sample_size([[50, 50], [90, 10]], [0.5, 0.5])
    array([100.,  36.])
    """
    n, q = class_counts(counts), shares("probabilities", probabilities)
    same_width(counts=n, probabilities=q)
    q = rows("probabilities", q, len(n))
    bad = (n == 0) & (q > 0)
    if bad.any():
        raise ValueError(f"probabilities{first(bad)} is {q[bad][0]}: the client holds no sample of that class")
    total = n.sum(axis=1)
    p_k = n / total[:, None]
    spread = np.where(n > 0, q**2 / np.where(n > 0, p_k, 1.0), 0.0).sum(axis=1)
    return total / spread


def skew_card(counts: ArrayLike) -> SkewCard:
    """Return how far each client's label mix is from that of all clients.

    Parameters
    ----------
    counts
        (K, C), samples per class of every client.

    Returns
    -------
    SkewCard
        Distances, missing classes and effective sample sizes, one value per client.

    Raises
    ------
    ValueError
        If a count is not a whole number, or a client has no samples.

    Examples
    --------
    >>> from isfl.theory import skew_card
    >>> card = skew_card([[90, 10, 0], [10, 90, 100]])
    >>> card.missing, card.total_variation.round(2)
    (array([1., 0.]), array([0.57, 0.28]))
    """
    n = class_counts(counts)
    total = n.sum(axis=1)
    p, p_k = n.sum(axis=0) / n.sum(), n / total[:, None]
    wanted = np.where(n > 0, p, 0.0)
    return SkewCard(
        samples=total,
        hellinger=np.sqrt(np.maximum(1.0 - np.sqrt(p * p_k).sum(axis=1), 0.0)),
        total_variation=0.5 * np.abs(p - p_k).sum(axis=1),
        missing=((n == 0) & (p > 0)).sum(axis=1).astype(np.float64),
        effective_size=effective_sample_size(n, wanted / wanted.sum(axis=1, keepdims=True)),
    )
