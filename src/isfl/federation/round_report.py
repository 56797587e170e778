"""Everything measured in a round, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isfl.federation.admission import Admission
from isfl.federation.diagnostics import Diagnosis, Drift
from isfl.federation.evaluation import ClassScores, Score
from isfl.federation.measuring import Measured, MeasuredMoments
from isfl.federation.movement import Movement
from isfl.federation.sampling_rules.isfl import Rho
from isfl.federation.settings import Settings
from isfl.federation.target_error import TargetError
from isfl.federation.values import ClientUpdate, FederationState, Observation, TrainTask, payload_bytes
from isfl.theory.arrays import Array
from isfl.theory.bound import Bound


@dataclass(frozen=True)
class Cost:
    """Gradient evaluations or seconds, summed over clients, by what they were spent on."""

    training: float
    sampling: float
    diagnostics: float
    aggregation: float = 0.0
    """Of the server: looking at updates and combining them. A forward pass is a third of a gradient evaluation."""


@dataclass(frozen=True)
class Aggregated:
    """The state with the new global model, and what came of the admitted updates."""

    state: FederationState
    admission: Admission
    """Without the updates that the aggregation left out, or all of them if their aggregate is not finite."""
    forward_passes: int = 0
    """Samples of the public set that went through a model."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Evaluation:
    """Accuracy after a round."""

    standard: ClassScores | None
    """On D_S; None in rounds that are not evaluated."""
    clients: Mapping[int, Score]
    """On each client's own data."""
    seconds: float


@dataclass(frozen=True)
class RoundReport:
    """Everything measured in a round; None stands for what was not measured."""

    round: int
    num_clients: int
    target_error: TargetError | None
    """Of a target that is estimated from the clients seen so far; None also while only one was."""
    participants: tuple[int, ...]
    """The clients that were chosen; those that could not be asked are in `refused`."""
    refused: Mapping[int, str]
    late: tuple[int, ...]
    """The clients that the round closed without (`[stragglers]`)."""
    simulated_seconds: float | None
    """When it closed, by the simulated latencies; None without them."""
    train_loss: float | None
    standard: ClassScores | None
    """None in rounds that are not evaluated."""
    clients: Mapping[int, Score]
    probabilities: Mapping[int, Array]
    """What clients drew with in this round, or would have, as far as it may be seen.

    Up to `MOST_LISTED` clients, every client seen so far; with more, those that took part.
    """
    lipschitz: Mapping[int, Array]
    """The values measured after this round's training, from which these clients' next probabilities follow."""
    rho: Rho[float | None]
    """Means over the clients whose `rho` is known."""
    update_norm: Mapping[int, float]
    """`||theta^k - theta||` of each admitted client: how far its model moved."""
    client_drift: Mapping[int, float]
    """`||theta^k - theta_mean||` of each admitted client: how far its model ended from the mean of all."""
    drift: Drift | None
    gradient_square: float | None
    bound: Bound | None
    dropped_samples: int
    clipped_values: int | None
    """Values of masked updates beyond `secure.range`; None without `secure`."""
    gradient_evaluations: Cost
    seconds: Cost
    evaluation_seconds: float
    bytes_up: int
    bytes_down: int
    epsilon: float | None
    """Of differential privacy, spent so far by the client that took part most often; None without `privacy`."""
    wall_seconds: float = 0.0
    """Of the whole round; set when it is over."""


def report_of(
    settings: Settings,
    state: FederationState,
    chosen: Sequence[int],
    tasks: Sequence[TrainTask],
    aggregated: Aggregated,
    observed: Mapping[int, Observation],
    moments: MeasuredMoments,
    measured: Measured | None,
    moved: Movement | None,
    theory: Diagnosis,
    evaluation: Evaluation,
    epsilon: float | None,
) -> RoundReport:
    """Put together what the steps of a round measured; `state` is the one before it, with the clients chosen."""
    admission = aggregated.admission
    secured = admission.secured
    sent: Sequence[object] = [task for task in tasks if task.client not in admission.unsent]
    received: Sequence[object] = []
    if secured is not None:
        sent, received = secured.sent, secured.received
    paid, found = admission.counted, None if measured is None else measured.cost
    refused = dict(admission.refused)
    if found is not None:
        refused |= {client: f"renewal: {reason}" for client, reason in found.refused.items()}
    return RoundReport(
        round=state.round + 1,
        num_clients=state.num_clients,
        target_error=settings.target.error(state.counts, state.num_clients),
        participants=tuple(chosen),
        refused=refused,
        late=tuple(admission.late),
        simulated_seconds=admission.simulated_seconds,
        train_loss=_mean_loss(admission.visible),
        standard=evaluation.standard,
        clients=evaluation.clients,
        probabilities={k: seen.probabilities for k, seen in observed.items()},
        lipschitz=_lipschitz_by_client(admission.admitted, measured),
        rho=Rho(None, None, None) if measured is None else measured.rho.mean(),
        update_norm=_distances(admission.admitted, None if moved is None else moved.update),
        client_drift=_distances(admission.admitted, None if moved is None else moved.drift),
        drift=theory.drift,
        gradient_square=theory.gradient_square,
        bound=theory.bound,
        dropped_samples=moments.dropped + (0 if found is None else found.dropped),
        clipped_values=None if secured is None else secured.clipped,
        gradient_evaluations=_cost(
            settings,
            training=sum(u.training_evaluations for u in paid),
            sampling=sum(u.sampling_evaluations for u in paid) + moments.evaluations,
            diagnostics=theory.evaluations,
            lipschitz=0 if found is None else found.evaluations,
            aggregation=-(-aggregated.forward_passes // 3),
        ),
        seconds=_cost(
            settings,
            training=sum(u.training_seconds for u in paid),
            sampling=sum(u.sampling_seconds for u in paid) + moments.seconds,
            diagnostics=sum(u.diagnostic_seconds for u in paid) + theory.seconds,
            lipschitz=0.0 if found is None else found.seconds,
            aggregation=aggregated.seconds + (0.0 if secured is None else secured.seconds),
        ),
        evaluation_seconds=evaluation.seconds,
        bytes_up=sum(map(payload_bytes, [*paid, *received])) + (0 if found is None else found.bytes_up),
        bytes_down=sum(map(payload_bytes, sent)) + (0 if found is None else found.bytes_down),
        epsilon=epsilon,
    )


def _cost(
    settings: Settings, training: float, sampling: float, diagnostics: float, lipschitz: float, aggregation: float
) -> Cost:
    """Book the cost of Lipschitz values under sampling, if they are ISFL's price, else under diagnostics."""
    for_sampling = settings.importance_sampling is not None
    return Cost(
        training, sampling + lipschitz * for_sampling, diagnostics + lipschitz * (not for_sampling), aggregation
    )


def _lipschitz_by_client(admitted: Sequence[ClientUpdate], measured: Measured | None) -> dict[int, Array]:
    """Return the Lipschitz values of the clients that have any."""
    if measured is None:
        return {}
    rows = zip(admitted, measured.lipschitz, strict=True)
    return {update.client: values for update, values in rows if np.isfinite(values).any()}


def _distances(admitted: Sequence[ClientUpdate], squares: Array | None) -> dict[int, float]:
    """Return the distance of each client from its square."""
    if squares is None:
        return {}
    return {update.client: float(length) for update, length in zip(admitted, np.sqrt(squares), strict=True)}


def _mean_loss(updates: Sequence[ClientUpdate]) -> float | None:
    """Return the training loss, weighted by the clients' numbers of samples; None if no client sent one."""
    known = [(update.train_loss, update.num_samples) for update in updates if update.train_loss is not None]
    if not known:
        return None
    losses, samples = zip(*known, strict=True)
    return float(np.average(losses, weights=samples))
