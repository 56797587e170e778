"""The theory as running diagnostics: both sides of Lemma 1 and of Theorem 1, measured in a round.

Nothing here is computed unless `diagnostics.bound` asks for it, and all it costs is booked under diagnostics. Lemma 1
and the theorem are about plain SGD; with another optimiser the bounds are indicative.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isfl.federation.interface import Engine
from isfl.federation.measuring import Measured
from isfl.federation.movement import Movement
from isfl.federation.settings import Settings, Training
from isfl.federation.training import steps_per_epoch
from isfl.federation.values import ClientUpdate, FederationState
from isfl.theory.arrays import Array
from isfl.theory.bound import Bound, convergence_bound, drift_bound


@dataclass(frozen=True)
class Drift:
    """Lemma 1 for the client whose drift comes closest to its bound, or exceeds it most."""

    measured: float
    """`||theta^k - theta_mean||^2` over the trainable parameters."""
    bound: float
    """`2 eta^2 E_l phi_k`."""


@dataclass(frozen=True)
class Diagnosis:
    """What a round says of the theory. None where the theory says nothing, or what it needs is unknown."""

    drift: Drift | None
    gradient_square: float | None
    """`||grad l(theta)||^2` on the public set, at the global model after the round: the theorem's left side."""
    bound: Bound | None
    evaluations: int
    seconds: float


NOTHING = Diagnosis(None, None, None, evaluations=0, seconds=0.0)


def diagnose(
    state: FederationState,
    new: FederationState,
    admitted: Sequence[ClientUpdate],
    measured: Measured | None,
    moved: Movement | None,
    settings: Settings,
    engine: Engine,
) -> Diagnosis:
    """Measure both sides for the steps between `state` and `new`."""
    if not settings.diagnostics.bound or not admitted:
        return NOTHING
    began = time.perf_counter()
    target = state.target[state.rows([update.client for update in admitted])].mean(axis=0)
    square, evaluations = engine.server.gradient_square(new.model, target)
    drift, bound = None, None
    if moved is not None:
        drift = _drift(state, admitted, moved.drift, settings)
        bound = None if measured is None else _bound(state, admitted, measured, settings, engine)
    return Diagnosis(
        drift=drift,
        gradient_square=square if np.isfinite(square) else None,
        bound=bound,
        evaluations=evaluations,
        seconds=time.perf_counter() - began,
    )


def _drift(
    state: FederationState, updates: Sequence[ClientUpdate], measured: Array, settings: Settings
) -> Drift | None:
    """Lemma 1: measured drifts beside their bounds, for the client with the largest ratio of the two."""
    weights = settings.scheme.aggregation.client_weights([u.num_samples for u in updates])
    norms, variances = _by_step(updates, settings.training)
    bounds = drift_bound(_learning_rate(state, settings), norms, variances, weights)
    if not (np.isfinite(bounds).all() and np.isfinite(measured).all()):
        return None
    # Two zeros (a step size that underflowed, a single client) are a ratio of zero.
    ratio = np.divide(measured, bounds, out=np.where(measured > 0, np.inf, 0.0), where=bounds > 0)
    worst = int(ratio.argmax())
    return Drift(float(measured[worst]), float(bounds[worst]))


def _bound(
    state: FederationState, admitted: Sequence[ClientUpdate], measured: Measured, settings: Settings, engine: Engine
) -> Bound | None:
    """Theorem 1 for the steps of this round, over the clients whose `rho` is known."""
    known = np.isfinite(measured.rho.used) & np.isfinite(measured.lipschitz).any(axis=1)
    if not known.any():
        return None
    present = [update for update, ok in zip(admitted, known, strict=True) if ok]
    rows = measured.lipschitz[known]
    target = state.target[state.rows([update.client for update in present])].mean(axis=0)
    # L_i of the global model must hold for every client; classes without a value count as the average one.
    per_class = np.array([np.nanmax(column) if np.isfinite(column).any() else np.nan for column in rows.T])
    mean_lipschitz = float(np.where(np.isfinite(per_class), per_class, np.nanmean(per_class)) @ target)
    loss_before = engine.server.public_loss(state.model)
    loss = np.where(np.isfinite(loss_before), loss_before, np.nanmean(loss_before))
    norms, variances = _by_step(present, settings.training)
    bound = convergence_bound(
        loss_gap=float(loss @ target),
        learning_rate=_learning_rate(state, settings),
        local_steps=len(norms),
        num_classes=len(target),
        weights=settings.scheme.aggregation.client_weights([u.num_samples for u in present]),
        rho=measured.rho.used[known],
        gradient_norm=norms,
        variance=variances,
        mean_lipschitz=mean_lipschitz,
    )
    return bound if np.isfinite(bound.total) else None


def _learning_rate(state: FederationState, settings: Settings) -> float:
    return settings.training.optimizer_in(state.round + 1).lr


def _by_step(updates: Sequence[ClientUpdate], training: Training) -> tuple[Array, Array]:
    """`G(t)` (T,) and `sigma_k^2(t)` (T, K) for every gradient step, from what clients measured per epoch.

    `T` is the largest number of steps of any client; one that is done earlier has gradients of zero from then on.
    `G` is the largest mean norm of any client.
    """
    steps = [steps_per_epoch(update.num_samples, training) for update in updates]
    total = max(steps) * training.local_epochs
    norms, variances = np.zeros((total, len(updates))), np.zeros((total, len(updates)))
    for k, (update, count) in enumerate(zip(updates, steps, strict=True)):
        assert update.gradient_norm is not None and update.gradient_variance is not None
        norms[: count * training.local_epochs, k] = np.repeat(update.gradient_norm, count)
        variances[: count * training.local_epochs, k] = np.repeat(update.gradient_variance, count)
    return norms.max(axis=1), variances
