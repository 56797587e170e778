"""Sampling probabilities that balance bias and variance of a client's gradient (ours).

A client that draws class `i` with probability `q_i` moves along `sum_i q_i g^k_i`, where `g^k_i` is the mean gradient
of its `n_i` samples of that class. The step that the target asks for is `sum_i p_i g_i`, where `g_i` is the true mean
gradient of the class. If the samples are independent, `g^k_i` has the mean `g_i` and a variance of `v_i / n_i`, so that
the expected squared error is exactly

    E || sum_i q_i g^k_i - sum_i p_i g_i ||^2 = (q - p)' M (q - p) + sum_i q_i^2 v_i / n_i

with the Gram matrix `M_ij = <g_i, g_j>` and `v_i` the variance of gradients inside class `i`. The first term pulls `q`
to the target, the second away from classes with few samples. A `weight` on the second term is 1 for the error of one
gradient. Several epochs over the same few samples add up the same noise, so that a larger weight can be right.

The minimum over the simplex is a convex quadratic problem. `M` and `v` belong to the model, not to a client: a client
needs only its own counts to solve it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isfl.theory.arrays import Array, ArrayLike, matrix, rows, same_width, shares
from isfl.theory.feasible import Mask

RIDGE = 1e-10
"""Pull to the target on the support, relative to the objective's curvature: it decides between equally good points."""
TOLERANCE = 1e-12
"""Relative size below which a multiplier counts as zero."""


@dataclass(frozen=True)
class Moments:
    """First and second moments of the gradients of each class, at one model."""

    gram: Array
    """(C, C) `M_ij = <g_i, g_j>`, symmetric and positive semi-definite."""
    variance: Array
    """(C,) `v_i = E ||g - g_i||^2` inside class `i`."""

    def packed(self) -> Array:
        """Return all numbers as one vector of length `C (C + 1)`, which a message can carry."""
        return np.concatenate([self.gram.ravel(), self.variance])

    @classmethod
    def unpacked(cls, vector: Array) -> Moments:
        """Return the moments in a vector that `packed` made; a ValueError if its length fits no `C`."""
        classes = int(np.sqrt(len(vector)))
        if classes * (classes + 1) != len(vector):
            raise ValueError(f"{len(vector)} numbers are not the moments of any number of classes")
        return cls(vector[: classes**2].reshape(classes, classes), vector[classes**2 :])


def gradient_error(
    q: ArrayLike, target: ArrayLike, counts: ArrayLike, moments: Moments, *, weight: float = 1.0
) -> Array:
    """Return `(q - p)' M (q - p) + weight * sum_i q_i^2 v_i / n_i`, (K,).

    Parameters
    ----------
    q, target, counts
        (C,) or (K, C). Probabilities, target shares, and samples of each class; where a client has none, `q` is 0.
    moments
        `M` and `v`.
    weight
        Of the second term.
    """
    q, n = matrix("q", q), matrix("counts", counts)
    difference = q - matrix("target", target)
    bias = np.einsum("ki,ij,kj->k", difference, moments.gram, difference)
    return bias + weight * (q**2 * moments.variance / np.where(n > 0, n, 1.0)).sum(axis=1)


def bias_variance_probabilities(
    target: ArrayLike, counts: ArrayLike, moments: Moments, *, weight: float = 1.0
) -> Array:
    """Return the probabilities with the smallest `gradient_error`, in the shape of `counts`.

    They are non-negative, sum to one and are zero for classes without samples. Where several points are equally good
    (`M` singular, `v` zero), the one closest to the target is chosen.

    Parameters
    ----------
    target
        (C,) or (K, C). The shares `p` to aim at.
    counts
        (C,) or (K, C). The samples of each class that the client(s) hold; every client has at least one.
    moments
        `M` and `v`, shared by all clients.
    weight
        Of the variance term, not negative.

    Raises
    ------
    ValueError
        If an argument is wrong; the message names it.
    """
    p, n = shares("target", target), matrix("counts", counts)
    same_width(counts=n, target=p, gram=moments.gram, variance=moments.variance[None])
    _check(n, moments, weight)
    p, support = rows("target", p, len(n)), n > 0
    wanted, held = np.where(support, p, 0.0), support.astype(np.float64)
    start = np.where(wanted.sum(axis=1, keepdims=True) > 0, wanted, held)
    start = start / start.sum(axis=1, keepdims=True)
    noise = weight * moments.variance / np.where(support, n, 1.0)
    curvature = moments.gram + noise[:, :, None] * np.eye(n.shape[1])
    # The objective may be scaled freely; with a unit diagonal the tolerances mean the same for every problem.
    scale = np.where(support, np.diagonal(curvature, axis1=1, axis2=2), 0.0).max(axis=1)
    scale = np.where(scale > 0, scale, 1.0)[:, None]
    curvature = curvature / scale[:, :, None] + RIDGE * np.eye(n.shape[1])
    pull = p @ moments.gram / scale + RIDGE * start
    q = _minimum(curvature, pull, start, support)
    return q[0] if np.ndim(counts) == 1 else q


def _check(counts: Array, moments: Moments, weight: float) -> None:
    if not (np.isfinite(counts).all() and (counts >= 0).all() and (counts.sum(axis=1) > 0).all()):
        raise ValueError("counts must be finite and not negative, with at least one sample per client")
    if not (np.isfinite(weight) and weight >= 0):
        raise ValueError(f"weight is {weight}: it must be finite and not negative")
    if not (np.isfinite(moments.gram).all() and np.isfinite(moments.variance).all() and (moments.variance >= 0).all()):
        raise ValueError("moments must be finite, and variances not negative")


def _minimum(curvature: Array, pull: Array, start: Array, support: Mask) -> Array:
    """Minimise `q' H q - 2 b' q` on the simplex over the support, for each of K clients: a primal active-set method.

    J. Nocedal, S. J. Wright, "Numerical Optimization", 2006, Algorithm 16.3, with all clients in step. Each iteration
    solves for the minimum over the free classes. If it lies inside the simplex, the bound class with the most
    negative multiplier is freed, and without one the point is optimal; otherwise the client goes towards it up to the
    first class that reaches zero, which is bound. The arguments are (K, C, C) positive definite, (K, C) and (K, C).
    """
    q, free = start.copy(), start > 0
    going = np.arange(len(q))
    for _ in range(20 * q.shape[1] + 20):  # a few per class suffice; the limit is for rounding errors alone
        aim, level = _on_free(curvature[going], pull[going], free[going])
        blocked = free[going] & (aim < 0)
        inside = ~blocked.any(axis=1)

        some = going[~inside]
        q[some], free[some] = _up_to_the_first_bound(q[some], aim[~inside], blocked[~inside], free[some])

        some = going[inside]
        q[some] = aim[inside]
        slope = np.einsum("kij,kj->ki", curvature[some], q[some]) - pull[some] - level[inside, None]
        slope = np.where(support[some] & ~free[some], slope, 0.0)
        rising = slope.min(axis=1) < -TOLERANCE
        free[some[rising], slope[rising].argmin(axis=1)] = True
        going = np.sort(np.concatenate([going[~inside], some[rising]]))
        if not len(going):
            break
    q = np.maximum(q, 0.0)
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def _on_free(curvature: Array, pull: Array, free: Mask) -> tuple[Array, Array]:
    """Return the minimum with all classes but the free ones at zero, (K, C), and the multiplier of the sum, (K,).

    The conditions `H q - mu = b` on the free classes, `q = 0` on the others and `sum q = 1` are one linear system.
    """
    clients, classes = pull.shape
    system = np.zeros((clients, classes + 1, classes + 1))
    system[:, :classes, :classes] = np.where(free[:, :, None] & free[:, None, :], curvature, np.eye(classes))
    system[:, :classes, classes] = -free.astype(np.float64)
    system[:, classes, :classes] = free
    right = np.concatenate([np.where(free, pull, 0.0), np.ones((clients, 1))], axis=1)
    found = np.linalg.solve(system, right[:, :, None])[:, :, 0]
    return np.where(free, found[:, :classes], 0.0), found[:, classes]


def _up_to_the_first_bound(q: Array, aim: Array, blocked: Mask, free: Mask) -> tuple[Array, Mask]:
    """Go from `q` towards `aim` until the first class reaches zero; return the point and the free classes left."""
    step = np.where(blocked, q / np.where(blocked, q - aim, 1.0), np.inf)
    length = step.min(axis=1, initial=np.inf, keepdims=True) if len(q) else step[:, :1]
    reached = blocked & (step <= length)
    moved = np.where(free & ~reached, q + length * (aim - q), 0.0)
    return np.maximum(moved, 0.0), free & ~reached


def estimate_moments(gram: Array, mean_square: Array, samples: Array) -> Moments | None:
    """Return the moments of true classes from those of `samples[i]` samples each; None if no class has two.

    The squared norm of a mean over `m_i` samples exceeds that of the true mean by `v_i / m_i` in expectation, which is
    subtracted; products of different classes are unbiased. The result is projected onto the positive semi-definite
    matrices. A class without samples counts as average: its entries are the means over the known ones. So does the
    variance of a class with a single sample.

    Parameters
    ----------
    gram
        (C, C) inner products of the classes' mean gradients.
    mean_square
        (C,) mean squared norm of the gradients of each class.
    samples
        (C,) samples `m_i`; where it is 0, the entries of the other arguments are ignored.
    """
    known, paired = samples > 0, samples > 1
    if not paired.any():
        return None
    spread = np.maximum(mean_square - np.diag(gram), 0.0)
    variance = np.where(paired, spread * samples / np.where(paired, samples - 1, 1.0), 0.0)
    variance = np.where(paired, variance, variance[paired].mean())
    corrected = gram - np.diag(variance / np.where(known, samples, 1.0))
    between = known[:, None] & known & ~np.eye(len(gram), dtype=bool)
    filled = np.where(between, corrected, corrected[between].mean() if between.any() else 0.0)
    own = np.diag(corrected)
    np.fill_diagonal(filled, np.where(known, own, own[known].mean()))
    return Moments(_nearest_semidefinite(filled), variance)


def _nearest_semidefinite(symmetric: Array) -> Array:
    """Return the positive semi-definite matrix closest in the Frobenius norm: negative eigenvalues become zero."""
    values, vectors = np.linalg.eigh(symmetric)
    nearest = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return np.asarray((nearest + nearest.T) / 2)
