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

import torch

from isfl.federation.admission import Admission
from isfl.federation.aggregations import aggregate
from isfl.federation.attacks import check_hostile
from isfl.federation.diagnostics import diagnose
from isfl.federation.interface import Engine, Server
from isfl.federation.introduction import empty_state, introduce, introduce_all
from isfl.federation.measuring import measure_and_renew, measure_moments
from isfl.federation.movement import movement
from isfl.federation.participation import (
    asked_in_round,
    evaluators,
    participant_count,
    participants,
    planned_use,
    use_so_far,
)
from isfl.federation.privacy import check_budget, check_model, noised_mean, spent_epsilon
from isfl.federation.round_report import Aggregated, Evaluation, RoundReport, report_of
from isfl.federation.sampling_rules.isfl import known_row
from isfl.federation.secure.collect import collect_masked
from isfl.federation.secure.settings import check_participants
from isfl.federation.settings import MOST_LISTED, Settings
from isfl.federation.stragglers import check_deadline
from isfl.federation.upload import collect_trained
from isfl.federation.values import FederationState, Observation, TrainTask
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
    chosen = participants(settings, state.num_clients, state.round + 1)
    state, absent = introduce(state, chosen, settings, engine)  # those that are chosen for the first time
    moments = measure_moments(state, settings, engine)
    tasks = [training_task(state, client, moments.packed) for client in chosen if client not in absent]
    state = state.with_asked([task.client for task in tasks])
    admission = collect(state, tasks, settings, engine).refusing(absent)  # lines 3 to 8: local training and upload
    observed = observe(state, tasks, moments.packed, engine)
    aggregated = aggregate_admitted(state, admission, settings, engine.server)  # line 9
    new, admission = aggregated.state, aggregated.admission
    new, measured = measure_and_renew(state, new, admission.admitted, observed, settings, engine)  # lines 10 to 12
    moved = movement(state, admission.admitted, settings, engine.server.facts.parameters)
    theory = diagnose(state, new, admission.admitted, measured, moved, settings, engine)
    evaluation = evaluate(new, settings, engine)
    epsilon = epsilon_after(new, settings)
    report = report_of(
        settings, state, chosen, tasks, aggregated, observed, moments, measured, moved, theory, evaluation, epsilon
    )
    return new, replace(report, wall_seconds=time.perf_counter() - began)


def start(settings: Settings, engine: Engine) -> FederationState:
    """Return the state before the first round; ask all clients to introduce themselves if the target needs that.

    Parameters
    ----------
    settings
        Seed, scheme, training and target of the federation.
    engine
        Where the clients are.

    Returns
    -------
    FederationState
        The initial model, and what the server knows of the clients. Without a target that needs all of them
        (`Target.from_all_clients`), that is nothing: each introduces itself when it is first chosen.

    Raises
    ------
    UserError
        If what a client says of itself cannot be right, or the settings do not fit the clients.

    Examples
    --------
    See `isfl.LocalEngine`.
    """
    clients, server = engine.num_clients, engine.server
    check_hostile(settings.attack, settings.seed, clients)
    check_deadline(settings.stragglers, engine.real_time)
    check_participants(settings.secure, participant_count(settings, clients), asked_in_round(settings, clients))
    settings.target.check(clients, server.num_classes)
    if settings.privacy is not None:
        check_model(server.initial_model(), server.facts.parameters, server.facts.statistics)
        check_budget(settings.privacy, clients, planned_use(settings, clients))
    state = empty_state(settings, engine)
    return introduce_all(state, settings, engine) if settings.target.from_all_clients else state


def training_task(state: FederationState, client: int, moments: Array | None) -> TrainTask:
    """Return what this client is sent if it takes part in the next round: the model, and what its rule needs."""
    row = state.row(client)
    return TrainTask(
        state.round + 1,
        client,
        state.model,
        state.target[row],
        probabilities=None if state.probabilities is None else state.probabilities[row],
        lipschitz=known_row(state.lipschitz, row),
        moments=moments,
    )


def epsilon_after(state: FederationState, settings: Settings) -> float | None:
    """Return what differential privacy has cost so far; None without it."""
    privacy = settings.privacy
    return None if privacy is None else spent_epsilon(privacy, state.num_clients, use_so_far(settings, state))


def collect(state: FederationState, tasks: Sequence[TrainTask], settings: Settings, engine: Engine) -> Admission:
    """Let clients train with importance sampling; decide which of their updates can be used, masked or not."""
    gather = collect_trained if settings.secure is None else collect_masked
    return gather(state, tasks, settings, engine)


def aggregate_admitted(state: FederationState, admission: Admission, settings: Settings, server: Server) -> Aggregated:
    """Return the state with the new global model; without usable updates the model stays as it was."""
    began, new_round = time.perf_counter(), state.round + 1
    unchanged, rule = replace(state, round=new_round), settings.scheme.aggregation
    if not admission.admitted:
        return Aggregated(unchanged, admission)
    screened = rule.screen(state.model, admission.visible, server)
    admission, updates = admission.refusing(screened.left_out), screened.updates
    if (privacy := settings.privacy) is not None and privacy.at == "server":
        needed = participant_count(settings, state.num_clients)
        updates = [noised_mean(state.model, updates, privacy, needed, server.privacy_noise(new_round))]
    model, memory = aggregate(rule, state.model, updates, state.server, server.facts.parameters)
    if server.facts.statistics:
        model = server.with_statistics(model)
    new = replace(unchanged, model=model, server=memory)
    if not all(bool(torch.isfinite(value).all()) for value in model.values()):  # the server's own step diverged
        reason = "the aggregate is not finite"
        new = unchanged
        admission = admission.refusing({update.client: reason for update in admission.admitted})
    return Aggregated(new, admission, screened.forward_passes, time.perf_counter() - began)


def observe(
    state: FederationState, tasks: Sequence[TrainTask], moments: Array | None, engine: Engine
) -> Mapping[int, Observation]:
    """Return what clients hold and drew with, as the server knows it or as far as a simulation may look.

    Of every client seen, or, with more than `MOST_LISTED` clients, of those with a task.
    """
    if state.num_clients <= MOST_LISTED:
        tasks = [training_task(state, int(client), moments) for client in state.clients]
    if state.probabilities is None or state.counts is None:
        return engine.observe(tasks)
    rows = state.rows([task.client for task in tasks])
    seen = zip(tasks, state.probabilities[rows], state.counts[rows] / state.sizes[rows, None], strict=True)
    return {task.client: Observation(probabilities, shares) for task, probabilities, shares in seen}


def evaluate(new: FederationState, settings: Settings, engine: Engine) -> Evaluation:
    """Measure accuracy on D_S and on the clients' data, in the rounds in which it is due."""
    began = time.perf_counter()
    due = new.round % settings.training.evaluate_every == 0 or new.round == settings.training.rounds
    chosen = evaluators(settings, new.num_clients, new.round) if due else ()
    standard, clients = engine.evaluate(new.model, chosen) if due else (None, {})
    return Evaluation(standard, clients, time.perf_counter() - began)
