"""After the aggregation: Lipschitz values, the probabilities that follow from them, and the bound they enter."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isfl.federation.admission import renewal_refusal
from isfl.federation.aggregation import client_weights
from isfl.federation.interface import Engine
from isfl.federation.normalization import only
from isfl.federation.renewal import renew
from isfl.federation.scheme import ImportanceSampling
from isfl.federation.settings import Settings
from isfl.federation.values import ClientUpdate, FederationState, Refusal, RenewalReport, RenewTask, payload_bytes
from isfl.theory.arrays import Array
from isfl.theory.bound import Bound, convergence_bound


@dataclass(frozen=True)
class Measured:
    """Lipschitz values of a round, per admitted client, and what follows from them."""

    lipschitz: Array
    rho_used: Array
    rho_paper: Array
    rho_minimum: Array
    dropped: int
    evaluations: int
    seconds: float
    bytes_up: int = 0
    bytes_down: int = 0
    refused: Mapping[int, str] = field(default_factory=dict)
    """Private ISFL: whose renewal could not be used, and why. Their probabilities stay what they were."""


def measure_and_renew(
    state: FederationState,
    new: FederationState,
    admitted: Sequence[ClientUpdate],
    used: Mapping[int, Array],
    settings: Settings,
    engine: Engine,
) -> tuple[FederationState, Measured | None]:
    """New probabilities for those who took part, at the server or at the client; others keep theirs."""
    rule = settings.importance_sampling
    reference = state.model if rule is not None and rule.reference == "before" else new.model
    clients = [update.client for update in admitted]
    if settings.renews_at_client:
        tasks = [RenewTask(new.round, k, reference, state.target[k]) for k in clients]
        return new, _measured_at_clients(tasks, engine, state.target)
    if rule is None and not settings.diagnostics.lipschitz:
        return new, None

    began = time.perf_counter()
    assert state.counts is not None
    shares = state.counts[clients] / state.sizes[clients, None]
    drawn = np.stack([used[k] for k in clients])
    # Statistics that stayed at the clients are replaced by the server's own, on both sides of the comparison.
    local = [{**only(reference, engine.facts.statistics), **update.model} for update in admitted]
    estimate = engine.lipschitz(local, reference)
    result = renew(rule or ImportanceSampling(), state.target[clients], shares, drawn, estimate.values)
    if rule is not None:
        assert state.probabilities is not None
        probabilities = state.probabilities.copy()
        probabilities[clients] = result.probabilities
        new = replace(new, probabilities=probabilities)
    return new, Measured(
        lipschitz=estimate.values,
        rho_used=result.rho_used,
        rho_paper=result.rho_paper,
        rho_minimum=result.rho_minimum,
        dropped=int(estimate.dropped.sum()),
        evaluations=estimate.gradient_evaluations,
        seconds=time.perf_counter() - began,
    )


def _measured_at_clients(tasks: Sequence[RenewTask], engine: Engine, target: Array) -> Measured:
    """What came back, and (in a simulation) what can be looked at: `rho` itself never travels."""
    asked = {task.client for task in tasks}
    reports: dict[int, RenewalReport] = {}
    refused: dict[int, str] = {}
    for answer in engine.renew(tasks):
        if isinstance(answer, Refusal):
            refused[answer.client] = answer.reason
        elif reason := renewal_refusal(answer, engine.num_classes):
            refused[answer.client] = reason
        elif answer.client in asked:
            reports[answer.client] = answer
    refused |= dict.fromkeys(asked - reports.keys() - refused.keys(), "did not answer")
    observed = engine.observe(target)
    seen = [observed[k].rho if k in observed and k in reports else None for k in sorted(asked)]
    unknown = np.full(engine.num_classes, np.nan)
    return Measured(
        lipschitz=np.stack([reports[k].lipschitz if k in reports else unknown for k in sorted(asked)]),
        rho_used=np.array([np.nan if rho is None else rho.used for rho in seen]),
        rho_paper=np.array([np.nan if rho is None else rho.paper for rho in seen]),
        rho_minimum=np.array([np.nan if rho is None else rho.minimum for rho in seen]),
        dropped=sum(r.dropped for r in reports.values()),
        evaluations=sum(r.evaluations for r in reports.values()),
        seconds=sum(r.seconds for r in reports.values()),
        bytes_up=sum(map(payload_bytes, reports.values())),
        bytes_down=sum(map(payload_bytes, tasks)),
        refused={client: refused[client] for client in sorted(refused)},
    )


def bound_of_round(
    state: FederationState,
    settings: Settings,
    admitted: Sequence[ClientUpdate],
    measured: Measured,
    engine: Engine,
) -> Bound | None:
    """Theorem 1 for the epochs of this round, over the clients whose `rho` is known."""
    known = np.isfinite(measured.rho_used) & np.isfinite(measured.lipschitz).any(axis=1)
    if not known.any():
        return None
    present = [update for update, ok in zip(admitted, known, strict=True) if ok]
    rows = measured.lipschitz[known]
    target = state.target[[update.client for update in present]].mean(axis=0)
    # L_i of the global model must hold for every client; classes without a value count as the average one.
    per_class = np.array([np.nanmax(column) if np.isfinite(column).any() else np.nan for column in rows.T])
    mean_lipschitz = float(np.where(np.isfinite(per_class), per_class, np.nanmean(per_class)) @ target)
    loss_before = engine.public_loss(state.model)
    loss = np.where(np.isfinite(loss_before), loss_before, np.nanmean(loss_before))
    bound = convergence_bound(
        loss_gap=float(loss @ target),
        learning_rate=settings.training.optimizer.lr,
        local_epochs=settings.training.local_epochs,
        num_classes=len(target),
        weights=client_weights(settings.scheme.aggregation, [u.num_samples for u in present]),
        rho=measured.rho_used[known],
        gradient_norm=np.max([u.gradient_norm for u in present], axis=0),
        variance=np.stack([u.gradient_variance for u in present], axis=1),
        mean_lipschitz=mean_lipschitz,
    )
    return bound if np.isfinite(bound.total) else None
