"""What sampling rules need to know of gradients: moments before a round, Lipschitz values after it.

After the aggregation come Lipschitz values and the probabilities that follow from them (Algorithm 2, lines 9 to 14).

Two questions, answered apart: who measures `L`, and who solves for `q`.

| `where` | `lipschitz_at` | `L` measured by | `q` solved by | sent beside the model |
|---|---|---|---|---|
| `server` | `server` | server | server | counts up once, `q^k` down |
| `client` | `server` | server | client | `L_k` down: the paper's private mode |
| `client` | `client` | client | client | the new global model down once more, `L_k` up unless `secure` is on |
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isfl.federation.admission import renewal_refusal, unsent_clients
from isfl.federation.interface import Engine
from isfl.federation.normalization import only
from isfl.federation.sampling_rules.isfl import ImportanceSampling, Rho, renew
from isfl.federation.settings import Settings
from isfl.federation.values import (
    ClientUpdate,
    FederationState,
    Observation,
    Refusal,
    RenewalReport,
    RenewTask,
    Weights,
    payload_bytes,
)
from isfl.theory.arrays import Array


@dataclass(frozen=True)
class MeasuredMoments:
    """Moments of the gradients of each class at the model a round starts from, and what they cost."""

    packed: Array | None = None
    """(C (C + 1),) what clients are sent; None if nothing was measured, or no gradient was finite."""
    dropped: int = 0
    evaluations: int = 0
    seconds: float = 0.0


def measure_moments(state: FederationState, settings: Settings, engine: Engine) -> MeasuredMoments:
    """Measure the moments at the model that clients are about to train, if their rule uses them."""
    if not settings.scheme.sampling.uses_moments:
        return MeasuredMoments()
    began = time.perf_counter()
    found = engine.server.moments(state.model)
    packed = None if found.moments is None else found.moments.packed()
    return MeasuredMoments(packed, found.dropped, found.gradient_evaluations, time.perf_counter() - began)


@dataclass(frozen=True)
class Lipschitz:
    """Lipschitz values of a round, one row per admitted client, and what they cost."""

    values: Array
    """(n, C), NaN where unknown."""
    dropped: int
    evaluations: int
    seconds: float
    bytes_up: int = 0
    bytes_down: int = 0
    refused: Mapping[int, str] = field(default_factory=dict)
    """Clients that measured their own and whose report could not be used. Their probabilities stay what they were."""


@dataclass(frozen=True)
class Measured:
    """Lipschitz values of a round, per admitted client, and what follows from them."""

    lipschitz: Array
    """(n, C)."""
    rho: Rho[Array]
    """(n,) each, NaN where `L` or the probabilities in use are unknown."""
    cost: Lipschitz


def measure_and_renew(
    state: FederationState,
    new: FederationState,
    admitted: Sequence[ClientUpdate],
    observed: Mapping[int, Observation],
    settings: Settings,
    engine: Engine,
) -> tuple[FederationState, Measured | None]:
    """Find new probabilities (or what clients need to find them) for those who took part; others keep theirs.

    `observed` has the probabilities in use and the label mix of the clients whose may be seen.
    """
    rule = settings.importance_sampling
    if not admitted or not (settings.measures_lipschitz or settings.measures_at_client):
        return new, None
    reference = state.model if rule is not None and rule.reference == "before" else new.model
    clients = [update.client for update in admitted]
    rows = state.rows(clients)
    if settings.measures_at_client:
        tasks = [RenewTask(new.round, k, reference, state.target[i]) for k, i in zip(clients, rows, strict=True)]
        found = _at_clients(tasks, engine, secure=settings.secure is not None)
    else:
        found = _at_server(admitted, reference, engine)

    seen = [i for i, k in enumerate(clients) if k in observed]
    rho = Rho(*np.full((3, len(clients)), np.nan))
    if seen:
        views = [observed[clients[i]] for i in seen]
        began = time.perf_counter()
        result = renew(
            rule or ImportanceSampling(),
            state.target[rows[seen]],
            np.stack([view.shares for view in views]),
            np.stack([view.probabilities for view in views]),
            found.values[seen],
        )
        found = replace(found, seconds=found.seconds + time.perf_counter() - began)
        rho.used[seen], rho.paper[seen], rho.minimum[seen] = result.rho.used, result.rho.paper, result.rho.minimum
        if state.probabilities is not None:
            probabilities = state.probabilities.copy()
            probabilities[rows] = result.probabilities  # where the server solves, it knows every client
            new = replace(new, probabilities=probabilities)
    if state.lipschitz is not None:
        lipschitz = state.lipschitz.copy()
        known = np.isfinite(found.values).any(axis=1)
        lipschitz[rows[known]] = found.values[known]
        new = replace(new, lipschitz=lipschitz)
    return new, Measured(found.values, rho, found)


def _at_server(admitted: Sequence[ClientUpdate], reference: Weights, engine: Engine) -> Lipschitz:
    """The server has the local models: it compares each with the global one on the public set."""
    began = time.perf_counter()
    # Statistics that stayed at the clients are replaced by the server's own, on both sides of the comparison.
    local = [{**only(reference, engine.server.facts.statistics), **update.model} for update in admitted]
    estimate = engine.server.lipschitz(local, reference)
    return Lipschitz(
        values=estimate.values,
        dropped=int(estimate.dropped.sum()),
        evaluations=estimate.gradient_evaluations,
        seconds=time.perf_counter() - began,
    )


def _at_clients(tasks: Sequence[RenewTask], engine: Engine, secure: bool) -> Lipschitz:
    """Each client compares its last local model with the new global one, which is sent to it.

    `secure`: the values stay at the clients, too.
    """
    asked = [task.client for task in tasks]
    reports: dict[int, RenewalReport] = {}
    refused: dict[int, str] = {}
    answers = engine.renew(tasks)
    for answer in answers:
        if isinstance(answer, Refusal):
            refused[answer.client] = answer.reason
        elif reason := renewal_refusal(answer, engine.server.num_classes, secure):
            refused[answer.client] = reason
        elif answer.client in asked:
            reports[answer.client] = answer
    refused |= dict.fromkeys(set(asked) - reports.keys() - refused.keys(), "did not answer")
    unknown = np.full(engine.server.num_classes, np.nan)
    unsent = unsent_clients(answers)
    told = {k: report.lipschitz for k, report in reports.items() if report.lipschitz is not None}
    return Lipschitz(
        values=np.stack([told.get(k, unknown) for k in asked]),
        dropped=sum(r.dropped for r in reports.values()),
        evaluations=sum(r.evaluations for r in reports.values()),
        seconds=sum(r.seconds for r in reports.values()),
        bytes_up=sum(map(payload_bytes, reports.values())),
        bytes_down=sum(payload_bytes(task) for task in tasks if task.client not in unsent),
        refused={client: refused[client] for client in sorted(refused)},
    )
