"""Lemma 1 and Theorem 1 of the paper, term by term, from measured quantities.

Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for Non-i.i.d. Data with Local Importance
Sampling", IEEE Internet of Things Journal, 2024, Section III and Appendix A. One `t` of the theorem is one gradient
step (`theta_t = theta_tc - sum eta g` in the proof), so `T` and `E_l` count steps here, never epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isfl.theory.arrays import SUM_TOLERANCE, Array, ArrayLike, first


@dataclass(frozen=True)
class Bound:
    """The bound on the mean squared gradient norm over a window of `T` steps and the terms it is made of."""

    initial: float
    """`2 (l(theta_T0) - l*) / (eta T)`: the loss that can still be gained."""
    psi: float
    """`1/T sum_t [eta L_mean sum_k pi_k sigma_k^2(t) + 2 C G^2(t)]`: noise and aggregation."""
    sampling: float
    """`2 eta^2 E_l / T sum_k pi_k rho(q^k) sum_t phi_k(t)`: the term that `q` moves."""
    phi: Array
    """(K,) `sum_t phi_k(t)`: how far each client may drift."""
    step_condition: float
    """`eta L_mean`: the theorem asks for at most 1."""

    @property
    def total(self) -> float:
        return self.initial + self.psi + self.sampling


def drift_growth(gradient_norm: Array, variance: Array, weights: Array) -> Array:
    """Return what step `tau` adds to `phi_k`, (T, K): `2 G^2(tau) + sigma_k^2(tau) + sum_l pi_l sigma_l^2(tau)`."""
    return np.asarray(2.0 * gradient_norm[:, None] ** 2 + variance + (variance @ weights)[:, None])


def drift_bound(learning_rate: float, gradient_norm: ArrayLike, variance: ArrayLike, weights: ArrayLike) -> Array:
    """Return the right-hand side of Lemma 1 after the last local step, (K,): a bound on `||theta^k - theta_mean||^2`.

    It is `2 eta^2 E_l phi_k`, where `E_l` is the number of local steps.

    Parameters
    ----------
    learning_rate
        `eta`.
    gradient_norm
        (E_l,) `G(t)`, a bound on the norm of stochastic gradients, in every local step.
    variance
        (E_l, K) `sigma_k^2(t)`.
    weights
        (K,) the aggregation weights `pi_k`.

    Returns
    -------
    Array
        (K,).

    Raises
    ------
    ValueError
        If the shapes do not agree.

    Examples
    --------
    >>> from isfl.theory import drift_bound
    >>> drift_bound(0.1, gradient_norm=[1.0, 1.0], variance=[[0.0, 1.0], [0.0, 1.0]], weights=[0.5, 0.5])
    array([0.2 , 0.28])
    """
    norms, sigma2, pi = (np.asarray(part, dtype=float) for part in (gradient_norm, variance, weights))
    phi = drift_growth(norms, sigma2, pi).sum(axis=0)
    return np.asarray(2.0 * learning_rate**2 * len(norms) * phi)


def _phi(growth: Array, local_steps: int) -> Array:
    """Return `phi_k(t)`, (T, K): the sum of `growth` from the last aggregation to `t - 1`. It restarts at 0 every
    `local_steps` steps."""
    phi = np.zeros_like(growth)
    for t in range(1, len(phi)):
        phi[t] = 0.0 if t % local_steps == 0 else phi[t - 1] + growth[t - 1]
    return phi


def convergence_bound(
    *,
    loss_gap: float,
    learning_rate: float,
    local_steps: int,
    num_classes: int,
    weights: ArrayLike,
    rho: ArrayLike,
    gradient_norm: ArrayLike,
    variance: ArrayLike,
    mean_lipschitz: float,
) -> Bound:
    """Return the bound of Theorem 1 for a window of `T` gradient steps that starts at an aggregation.

    Parameters
    ----------
    loss_gap
        `l(theta_T0) - l*`; with cross-entropy, `l* >= 0` makes the loss itself a safe value.
    learning_rate
        `eta`.
    local_steps
        `E_l`, gradient steps between two aggregations.
    num_classes
        `C`.
    weights
        (K,) the aggregation weights `pi_k`, summing to 1.
    rho
        (K,) `rho(q^k)` of the probabilities in use.
    gradient_norm
        (T,) `G(t)`, a bound on the norm of stochastic gradients.
    variance
        (T, K) `sigma_k^2(t)`.
    mean_lipschitz
        `sum_i p_i L_i` of the global model.

    Returns
    -------
    Bound
        The right-hand side and its terms.

    Raises
    ------
    ValueError
        If an argument has a wrong shape or value; the message names it and the index.

    Examples
    --------
    >>> from isfl.theory import convergence_bound
    >>> bound = convergence_bound(
    ...     loss_gap=2.0, learning_rate=0.1, local_steps=2, num_classes=10, weights=[0.5, 0.5], rho=[1.0, 1.5],
    ...     gradient_norm=[1.0, 1.0], variance=[[0.1, 0.1], [0.1, 0.1]], mean_lipschitz=3.0,
    ... )
    >>> round(bound.initial, 3), round(bound.psi, 3), round(bound.sampling, 3), round(bound.total, 3)
    (20.0, 20.03, 0.055, 40.085)
    """
    for name, value in (("learning_rate", learning_rate), ("local_steps", local_steps), ("num_classes", num_classes)):
        if not value > 0:
            raise ValueError(f"{name} is {value}: it must be positive")
    for name, number in (("loss_gap", loss_gap), ("mean_lipschitz", mean_lipschitz)):
        if not (np.isfinite(number) and number >= 0):
            raise ValueError(f"{name} is {number}: it must be finite and not negative")
    pi, factors = np.asarray(weights, dtype=float), np.asarray(rho, dtype=float)
    norms, sigma2 = np.asarray(gradient_norm, dtype=float), np.asarray(variance, dtype=float)
    if norms.ndim != 1 or len(norms) == 0:
        raise ValueError(f"gradient_norm must have shape (T,) with at least one step, found {norms.shape}")
    if sigma2.shape != (len(norms), len(pi)) or factors.shape != pi.shape:
        raise ValueError(
            f"variance must have shape (T, K) = {(len(norms), len(pi))} and rho (K,), found {sigma2.shape} "
            f"and {factors.shape}"
        )
    for name, array in (("weights", pi), ("rho", factors), ("gradient_norm", norms), ("variance", sigma2)):
        bad = ~(np.isfinite(array) & (array >= 0))
        if bad.any():
            raise ValueError(f"{name}{first(bad)} is {array[bad][0]}: it must be finite and not negative")
    if abs(pi.sum() - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"weights sum to {pi.sum():.6g}: they must sum to 1")
    steps = len(norms)
    phi = _phi(drift_growth(norms, sigma2, pi), local_steps).sum(axis=0)
    noise = learning_rate * mean_lipschitz * (sigma2 @ pi) + 2.0 * num_classes * norms**2
    return Bound(
        initial=2.0 * loss_gap / (learning_rate * steps),
        psi=float(noise.mean()),
        sampling=float(2.0 * learning_rate**2 * local_steps / steps * (pi * factors * phi).sum()),
        phi=phi,
        step_condition=learning_rate * mean_lipschitz,
    )
