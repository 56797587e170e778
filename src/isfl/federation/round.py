"""One round of federated learning with local importance sampling (Algorithm 2).

Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for Non-i.i.d. Data with Local Importance
Sampling", IEEE Internet of Things Journal, 2024. Clients that shuffle instead make it FedAvg: H. B. McMahan, E. Moore,
D. Ramage, S. Hampson, B. Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017.

`start` and `run_round` are functions from state to state. The engine decides where things run; it carries values and
holds no algorithm.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from isfl.errors import UserError
from isfl.federation.admission import Admission, admit, profile_refusal
from isfl.federation.aggregations import aggregate
from isfl.federation.attacks import attacked, check_hostile
from isfl.federation.diagnostics import diagnose
from isfl.federation.interface import Engine, ModelFacts, Server
from isfl.federation.measuring import measure_and_renew, measure_moments
from isfl.federation.movement import movement
from isfl.federation.privacy import check_budget, check_model, noised_mean, spent_epsilon
from isfl.federation.round_report import Aggregated, Evaluation, RoundReport, report_of
from isfl.federation.sampling_rules.isfl import known_row
from isfl.federation.settings import Settings
from isfl.federation.values import ClientUpdate, FederationState, Observation, Refusal, TrainTask
from isfl.randomness import Purpose, generator
from isfl.theory.arrays import Array


def run_round(state: FederationState, settings: Settings, engine: Engine) -> tuple[FederationState, RoundReport]:
    """Run one round; return the state after it, which is all that the next round needs, and what was measured.

    Parameters
    ----------
    state
        The state before the round, from `start` or the last round; it is not changed.
    settings
        Seed, scheme, training and target of the federation.
    engine
        Where the clients are.

    Returns
    -------
    tuple of FederationState and RoundReport
        The state after the round, and its report.

    Raises
    ------
    UserError
        If the engine cannot go on, for instance because too few clients are connected. An answer that cannot be used is
        refused and named in the report; the round goes on without it.

    Examples
    --------
    See `isfl.LocalEngine`.
    """
    began = time.perf_counter()
    moments = measure_moments(state, settings, engine)
    tasks = training_tasks(state, settings, moments.packed)
    answers = engine.train(tasks)  # lines 3 to 6: local training with importance sampling
    admission = admit_answers(tasks, answers, state, settings, engine.server.facts)  # line 8: upload
    observed = observe(state, moments.packed, engine)
    aggregated = aggregate_admitted(state, admission, settings, engine.server)  # line 9
    new, admission = aggregated.state, aggregated.admission
    new, measured = measure_and_renew(state, new, admission.admitted, observed, settings, engine)  # lines 10 to 12
    moved = movement(state, admission.admitted, settings, engine.server.facts.parameters)
    theory = diagnose(state, new, admission.admitted, measured, moved, settings, engine)
    evaluation = evaluate(new, settings, engine)
    epsilon = epsilon_after(settings, len(state.sizes), new.round)
    report = report_of(
        settings, state, tasks, aggregated, observed, moments, measured, moved, theory, evaluation, epsilon
    )
    return new, replace(report, wall_seconds=time.perf_counter() - began)


def start(settings: Settings, engine: Engine) -> FederationState:
    """Ask the clients to introduce themselves; return the state before the first round.

    Parameters
    ----------
    settings
        Seed, scheme, training and target of the federation.
    engine
        Where the clients are.

    Returns
    -------
    FederationState
        The initial model, and what the server knows of the clients.

    Raises
    ------
    UserError
        If what a client says of itself cannot be right.

    Examples
    --------
    See `isfl.LocalEngine`.
    """
    profiles = sorted(engine.introduce(), key=lambda profile: profile.client)
    ids = [profile.client for profile in profiles]
    if ids != list(range(len(ids))) or not ids:
        raise UserError(f"clients must introduce themselves as 0 to K - 1, each once; found {ids}")
    check_hostile(settings.attack, settings.seed, len(profiles))
    exact = settings.target.count_epsilon is None
    for profile in profiles:
        hidden = settings.hides_counts and exact
        if reason := profile_refusal(profile, engine.server.num_classes, exact, hidden):
            raise UserError(f"client {profile.client} {reason}")
    if settings.privacy is not None:
        check_model(engine.server.initial_model(), engine.server.facts.parameters, engine.server.facts.statistics)
        check_budget(settings.privacy, len(ids), chosen_until(settings, len(ids), settings.training.rounds))
    target = settings.target.client_shares(profiles, engine.server.num_classes)
    counts = None
    if not settings.hides_counts:
        counts = np.stack([p.class_counts for p in profiles if p.class_counts is not None])
    rule = settings.importance_sampling
    probabilities = None
    if rule is not None and counts is not None:
        probabilities = np.stack([rule.class_probabilities(c, t) for c, t in zip(counts, target, strict=True)])
    sends_lipschitz = settings.solves_at_client and not settings.measures_at_client
    return FederationState(
        round=0,
        model=engine.server.initial_model(),
        target=target,
        sizes=np.array([profile.num_samples for profile in profiles]),
        counts=counts,
        probabilities=probabilities,
        lipschitz=np.full(target.shape, np.nan) if sends_lipschitz else None,
    )


def training_tasks(state: FederationState, settings: Settings, moments: Array | None) -> list[TrainTask]:
    """Return what the clients of the next round are sent: the model, and what their sampling rule needs."""
    clients = participants(settings, len(state.sizes), state.round + 1)
    return [training_task(state, client, moments) for client in clients]


def training_task(state: FederationState, client: int, moments: Array | None) -> TrainTask:
    """Return what this client is sent if it takes part in the next round."""
    return TrainTask(
        state.round + 1,
        client,
        state.model,
        state.target[client],
        probabilities=None if state.probabilities is None else state.probabilities[client],
        lipschitz=known_row(state.lipschitz, client),
        moments=moments,
    )


def participants(settings: Settings, clients: int, round: int) -> list[int]:
    """Choose the clients of a round at random, the same ones on every engine."""
    count = participant_count(settings, clients)
    if count >= clients:
        return list(range(clients))
    chosen = generator(settings.seed, Purpose.PARTICIPATION, round=round).choice(clients, count, replace=False)
    return sorted(int(client) for client in chosen)


def chosen_until(settings: Settings, clients: int, round: int) -> list[list[int]]:
    """Return the clients of each round up to this one."""
    return [participants(settings, clients, number) for number in range(1, round + 1)]


def epsilon_after(settings: Settings, clients: int, round: int) -> float | None:
    """Return what differential privacy has cost after this round; None without it."""
    if settings.privacy is None:
        return None
    return spent_epsilon(settings.privacy, clients, chosen_until(settings, clients, round))


def participant_count(settings: Settings, clients: int) -> int:
    """Return how many clients take part in a round: the share rounded half up, at least one."""
    return max(1, int(np.floor(settings.training.participation * clients + 0.5)))


def admit_answers(
    tasks: Sequence[TrainTask],
    answers: Sequence[ClientUpdate | Refusal],
    state: FederationState,
    settings: Settings,
    facts: ModelFacts,
) -> Admission:
    """Decide which answers can be aggregated, after hostile clients of a simulated attack have changed theirs."""
    admission = admit(tasks, answers, state, settings, facts)
    sent = attacked(settings.attack, settings.seed, admission.admitted, state.model, facts.parameters)
    if sent:
        admission = admit(tasks, [sent.get(a.client, a) for a in answers], state, settings, facts)
    return admission


def aggregate_admitted(state: FederationState, admission: Admission, settings: Settings, server: Server) -> Aggregated:
    """Return the state with the new global model; without usable updates the model stays as it was."""
    began, new_round = time.perf_counter(), state.round + 1
    unchanged, rule = replace(state, round=new_round), settings.scheme.aggregation
    if not admission.admitted:
        return Aggregated(unchanged, admission)
    screened = rule.screen(state.model, admission.admitted, server)
    admission, updates = admission.refusing(screened.left_out), screened.updates
    if (privacy := settings.privacy) is not None and privacy.at == "server":
        asked = participant_count(settings, len(state.sizes))
        updates = [noised_mean(state.model, updates, privacy, asked, server.privacy_noise(new_round))]
    model, memory = aggregate(rule, state.model, updates, state.server, server.facts.parameters)
    if server.facts.statistics:
        model = server.with_statistics(model)
    new = replace(unchanged, model=model, server=memory)
    if not all(bool(torch.isfinite(value).all()) for value in model.values()):  # the server's own step diverged
        reason = "the aggregate is not finite"
        new = unchanged
        admission = admission.refusing({update.client: reason for update in admission.admitted})
    return Aggregated(new, admission, screened.forward_passes, time.perf_counter() - began)


def observe(state: FederationState, moments: Array | None, engine: Engine) -> Mapping[int, Observation]:
    """Return what clients hold and drew with, as the server knows it or as far as a simulation may look."""
    if state.probabilities is None or state.counts is None:
        return engine.observe([training_task(state, client, moments) for client in range(len(state.sizes))])
    rows = zip(state.probabilities, state.counts / state.sizes[:, None], strict=True)
    return {k: Observation(probabilities, shares) for k, (probabilities, shares) in enumerate(rows)}


def evaluate(new: FederationState, settings: Settings, engine: Engine) -> Evaluation:
    """Measure accuracy on D_S and on the clients' data, in the rounds in which it is due."""
    began = time.perf_counter()
    due = new.round % settings.training.evaluate_every == 0 or new.round == settings.training.rounds
    standard, clients = engine.evaluate(new.model) if due else (None, {})
    return Evaluation(standard, clients, time.perf_counter() - began)
