"""The right-hand side of the convergence bound (Theorem 1), term by term, from measured quantities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isfl.theory.arrays import SUM_TOLERANCE, Array, ArrayLike, first


@dataclass(frozen=True)
class Bound:
    """The bound on the mean squared gradient norm over a window of `T` epochs and the terms it is made of."""

    initial: float
    """`2 (l(theta_T0) - l*) / (eta T)`: the loss that is still to be won."""
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


def drift(gradient_norm: Array, variance: Array, weights: Array, local_epochs: int) -> Array:
    """(T, K) `phi_k(t) = sum_{tau=t_c}^{t-1} [2 G^2(tau) + sigma_k^2(tau) + sum_l pi_l sigma_l^2(tau)]`.

    `t_c` is the last aggregation before `t`: the sum starts anew every `local_epochs` steps.
    """
    growth = 2.0 * gradient_norm[:, None] ** 2 + variance + (variance @ weights)[:, None]
    phi = np.zeros_like(variance)
    for t in range(1, len(phi)):
        phi[t] = 0.0 if t % local_epochs == 0 else phi[t - 1] + growth[t - 1]
    return phi


def convergence_bound(
    *,
    loss_gap: float,
    learning_rate: float,
    local_epochs: int,
    num_classes: int,
    weights: ArrayLike,
    rho: ArrayLike,
    gradient_norm: ArrayLike,
    variance: ArrayLike,
    mean_lipschitz: float,
) -> Bound:
    """Theorem 1 for a window of `T` epochs that starts at an aggregation.

    Parameters
    ----------
    loss_gap
        `l(theta_T0) - l*`; with cross-entropy, `l* >= 0` makes the loss itself a safe value.
    learning_rate
        `eta`.
    local_epochs
        `E_l`.
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
    """
    for name, value in (("learning_rate", learning_rate), ("local_epochs", local_epochs), ("num_classes", num_classes)):
        if not value > 0:
            raise ValueError(f"{name} is {value}: it must be positive")
    for name, number in (("loss_gap", loss_gap), ("mean_lipschitz", mean_lipschitz)):
        if not (np.isfinite(number) and number >= 0):
            raise ValueError(f"{name} is {number}: it must be finite and not negative")
    pi, factors = np.asarray(weights, dtype=float), np.asarray(rho, dtype=float)
    norms, sigma2 = np.asarray(gradient_norm, dtype=float), np.asarray(variance, dtype=float)
    if norms.ndim != 1 or len(norms) == 0:
        raise ValueError(f"gradient_norm must have shape (T,) with at least one epoch, found {norms.shape}")
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
    epochs = len(norms)
    phi = drift(norms, sigma2, pi, local_epochs).sum(axis=0)
    noise = learning_rate * mean_lipschitz * (sigma2 @ pi) + 2.0 * num_classes * norms**2
    return Bound(
        initial=2.0 * loss_gap / (learning_rate * epochs),
        psi=float(noise.mean()),
        sampling=float(2.0 * learning_rate**2 * local_epochs / epochs * (pi * factors * phi).sum()),
        phi=phi,
        step_condition=learning_rate * mean_lipschitz,
    )
