"""What a round is (Algorithm 2): choose clients, train, admit, aggregate, renew the probabilities, evaluate.

`start` and `run_round` are functions from state to state. Where things run is the engine's business; it carries
values and knows no algorithm.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from isfl.errors import UserError
from isfl.federation.admission import cost_refusal, profile_refusal, update_refusal
from isfl.federation.aggregations import aggregate
from isfl.federation.diagnostics import NOTHING, Drift, diagnose
from isfl.federation.evaluation import ClassScores, Score
from isfl.federation.interface import Engine, ModelFacts
from isfl.federation.measuring import Measured, measure_and_renew
from isfl.federation.normalization import without
from isfl.federation.sampling_rules.isfl import known_row
from isfl.federation.settings import NoisedTarget, Settings
from isfl.federation.targets import target_shares
from isfl.federation.values import ClientUpdate, FederationState, Observation, Refusal, TrainTask, payload_bytes
from isfl.randomness import Purpose, generator
from isfl.theory.arrays import Array
from isfl.theory.bound import Bound


@dataclass(frozen=True)
class Cost:
    """The same split for gradient evaluations and for seconds (summed over clients)."""

    training: float
    sampling: float
    diagnostics: float


@dataclass(frozen=True)
class RoundReport:
    """Everything measured in a round."""

    round: int
    num_clients: int
    participants: tuple[int, ...]
    refused: Mapping[int, str]
    train_loss: float | None
    standard: ClassScores | None
    """None in rounds that are not evaluated."""
    clients: Mapping[int, Score]
    probabilities: Mapping[int, Array]
    """What each client drew with in this round, or would have, as far as it may be seen."""
    lipschitz: Mapping[int, Array]
    """The values measured after this round's training: what the next probabilities of these clients follow from."""
    rho_used: float | None
    rho_paper: float | None
    rho_minimum: float | None
    drift: Drift | None
    gradient_square: float | None
    bound: Bound | None
    dropped_samples: int
    gradient_evaluations: Cost
    seconds: Cost
    evaluation_seconds: float
    wall_seconds: float
    bytes_up: int
    bytes_down: int


def start(settings: Settings, engine: Engine) -> FederationState:
    """Ask the clients who they are; the state before the first round."""
    profiles = sorted(engine.introduce(), key=lambda profile: profile.client)
    ids = [profile.client for profile in profiles]
    if ids != list(range(len(ids))) or not ids:
        raise UserError(f"clients must introduce themselves as 0 to K - 1, each once; found {ids}")
    exact = not isinstance(settings.target, NoisedTarget)
    for profile in profiles:
        hidden = settings.hides_counts and exact
        if reason := profile_refusal(profile, engine.server.num_classes, exact, hidden):
            raise UserError(f"client {profile.client} {reason}")
    target = target_shares(settings.target, profiles, engine.server.num_classes)
    counts = None
    if not settings.hides_counts:
        counts = np.stack([p.class_counts for p in profiles if p.class_counts is not None])
    rule = settings.importance_sampling
    probabilities = None
    if rule is not None and counts is not None:
        probabilities = np.stack([rule.class_probabilities(c, t) for c, t in zip(counts, target, strict=True)])
    told = settings.solves_at_client and not settings.measures_at_client
    return FederationState(
        round=0,
        model=engine.server.initial_model(),
        target=target,
        sizes=np.array([profile.num_samples for profile in profiles]),
        counts=counts,
        probabilities=probabilities,
        lipschitz=np.full(target.shape, np.nan) if told else None,
    )


def participants(settings: Settings, clients: int, round: int) -> list[int]:
    """Who takes part: a random share, the same for every engine; at least one."""
    count = participant_count(settings, clients)
    if count >= clients:
        return list(range(clients))
    chosen = generator(settings.seed, Purpose.PARTICIPATION, round=round).choice(clients, count, replace=False)
    return sorted(int(client) for client in chosen)


def participant_count(settings: Settings, clients: int) -> int:
    """How many take part: the share rounded half up, at least one."""
    return max(1, int(np.floor(settings.training.participation * clients + 0.5)))


def run_round(state: FederationState, settings: Settings, engine: Engine) -> tuple[FederationState, RoundReport]:
    """One round. The state that comes back is all that the next one needs."""
    began = time.perf_counter()
    number = state.round + 1
    tasks = [
        TrainTask(
            number,
            client,
            state.model,
            state.target[client],
            probabilities=None if state.probabilities is None else state.probabilities[client],
            lipschitz=known_row(state.lipschitz, client),
        )
        for client in participants(settings, len(state.sizes), number)
    ]
    answers = sorted(engine.train(tasks), key=lambda answer: answer.client)
    updates = [answer for answer in answers if isinstance(answer, ClientUpdate) and cost_refusal(answer) is None]
    wanted = settings.training.local_epochs if settings.diagnostics.bound else None
    admitted, refused = admit(tasks, answers, state, engine.server.facts, wanted)
    observed = _observed(state, engine)

    new = replace(state, round=number)
    measured: Measured | None = None
    theory = NOTHING
    if admitted:
        model, memory = aggregate(
            settings.scheme.aggregation, state.model, admitted, state.server, engine.server.facts.parameters
        )
        if engine.server.facts.statistics:
            model = engine.server.with_statistics(model)
        if all(bool(torch.isfinite(value).all()) for value in model.values()):
            new = replace(new, model=model, server=memory)
            new, measured = measure_and_renew(state, new, admitted, observed, settings, engine)
            refused |= {k: f"renewal: {reason}" for k, reason in measured.cost.refused.items()} if measured else {}
            theory = diagnose(state, new, admitted, measured, settings, engine)
        else:  # the server's own step diverged: keep the model, forget the step
            refused |= {update.client: "the aggregate is not finite" for update in admitted}
            admitted = []

    evaluation_began = time.perf_counter()
    standard: ClassScores | None = None
    clients: Mapping[int, Score] = {}
    if number % settings.training.evaluate_every == 0 or number == settings.training.rounds:
        standard, clients = engine.evaluate(new.model)
    evaluation_seconds = time.perf_counter() - evaluation_began

    is_isfl = settings.importance_sampling is not None
    extra = (measured.cost.evaluations, measured.cost.seconds) if measured else (0, 0.0)
    sampling_extra, diagnostic_extra = (extra, (0, 0.0)) if is_isfl else ((0, 0.0), extra)
    report = RoundReport(
        round=number,
        num_clients=len(state.sizes),
        participants=tuple(task.client for task in tasks),
        refused=refused,
        train_loss=_weighted(admitted, [u.train_loss for u in admitted]),
        standard=standard,
        clients=clients,
        probabilities={k: seen.probabilities for k, seen in observed.items()},
        lipschitz=_by_client(admitted, measured),
        rho_used=_mean(measured.rho_used) if measured else None,
        rho_paper=_mean(measured.rho_paper) if measured else None,
        rho_minimum=_mean(measured.rho_minimum) if measured else None,
        drift=theory.drift,
        gradient_square=theory.gradient_square,
        bound=theory.bound,
        dropped_samples=measured.cost.dropped if measured else 0,
        gradient_evaluations=Cost(
            training=sum(u.training_evaluations for u in updates),
            sampling=sum(u.sampling_evaluations for u in updates) + sampling_extra[0],
            diagnostics=diagnostic_extra[0] + theory.evaluations,
        ),
        seconds=Cost(
            training=sum(u.training_seconds for u in updates),
            sampling=sum(u.sampling_seconds for u in updates) + sampling_extra[1],
            diagnostics=sum(u.diagnostic_seconds for u in updates) + diagnostic_extra[1] + theory.seconds,
        ),
        evaluation_seconds=evaluation_seconds,
        wall_seconds=time.perf_counter() - began,
        bytes_up=sum(map(payload_bytes, updates)) + (measured.cost.bytes_up if measured else 0),
        bytes_down=sum(map(payload_bytes, tasks)) + (measured.cost.bytes_down if measured else 0),
    )
    return new, report


def admit(
    tasks: Sequence[TrainTask],
    answers: Sequence[ClientUpdate | Refusal],
    state: FederationState,
    facts: ModelFacts,
    epochs: int | None,
) -> tuple[list[ClientUpdate], dict[int, str]]:
    """The updates to aggregate, and why other answers were refused. Each client is heard once.

    `epochs` is how many gradient norms each client was asked for, None if none.
    """
    expected = without(state.model, facts.statistics)
    asked = {task.client for task in tasks}
    admitted: dict[int, ClientUpdate] = {}
    refused: dict[int, str] = {}
    for answer in answers:
        if answer.client not in asked:
            refused[answer.client] = "was not asked"
        elif isinstance(answer, Refusal):
            refused[answer.client] = answer.reason
        elif answer.client in admitted:
            refused[answer.client] = "answered twice"
        elif reason := update_refusal(answer, expected, int(state.sizes[answer.client]), epochs):
            refused[answer.client] = reason
        else:
            admitted[answer.client] = answer
    for client in sorted(asked - admitted.keys() - refused.keys()):
        refused[client] = "did not answer"
    return [update for client, update in admitted.items() if client not in refused], refused


def _observed(state: FederationState, engine: Engine) -> Mapping[int, Observation]:
    """What clients hold and drew with: as the server knows it, or as far as it may be looked at."""
    if state.probabilities is None or state.counts is None:
        return engine.observe(state.target, state.lipschitz)
    rows = zip(state.probabilities, state.counts / state.sizes[:, None], strict=True)
    return {k: Observation(probabilities, shares) for k, (probabilities, shares) in enumerate(rows)}


def _by_client(admitted: Sequence[ClientUpdate], measured: Measured | None) -> dict[int, Array]:
    """Lipschitz values of those for whom there are any."""
    if measured is None:
        return {}
    rows = zip(admitted, measured.lipschitz, strict=True)
    return {update.client: values for update, values in rows if np.isfinite(values).any()}


def _weighted(updates: Sequence[ClientUpdate], values: Sequence[float]) -> float | None:
    if not updates:
        return None
    return float(np.average(values, weights=[u.num_samples for u in updates]))


def _mean(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
