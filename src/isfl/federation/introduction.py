"""Clients introduce themselves: all before the first round, or each when it is first chosen.

The target decides (`Target.from_all_clients`). Shares that follow from the data of all clients need all of them first.
Where shares are given, or estimated from the clients seen so far, the server knows nothing of a client until it is
chosen, and its state grows with the clients seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from isfl.errors import UserError
from isfl.federation.admission import profile_refusal
from isfl.federation.interface import Engine
from isfl.federation.settings import Settings
from isfl.federation.values import ClientProfile, FederationState, Refusal
from isfl.theory.arrays import Array


def empty_state(settings: Settings, engine: Engine) -> FederationState:
    """Return the state before any client has been seen."""
    none = np.zeros((0, engine.server.num_classes))
    solves = settings.importance_sampling is not None and not settings.hides_counts
    sends_lipschitz = settings.solves_at_client and not settings.measures_at_client
    return FederationState(
        round=0,
        model=engine.server.initial_model(),
        num_clients=engine.num_clients,
        clients=np.zeros(0, dtype=np.int64),
        target=none,
        sizes=np.zeros(0, dtype=np.int64),
        asked=np.zeros(0, dtype=np.int64),
        counts=None if settings.hides_counts else none,
        probabilities=none if solves else None,
        lipschitz=none if sends_lipschitz else None,
    )


def introduce_all(state: FederationState, settings: Settings, engine: Engine) -> FederationState:
    """Return the state with a row for every client; raise `UserError` if a profile is invalid."""
    answers = sorted(engine.introduce(range(state.num_clients)), key=lambda answer: answer.client)
    ids = [answer.client for answer in answers]
    if ids != list(range(state.num_clients)):
        raise UserError(f"clients must introduce themselves as 0 to K - 1, each once; found {ids}")
    for answer in answers:
        if reason := _refusal(answer, settings, engine):
            raise UserError(f"client {answer.client} {reason}")
    return _with_rows(state, [answer for answer in answers if isinstance(answer, ClientProfile)], settings)


def introduce(
    state: FederationState, clients: Iterable[int], settings: Settings, engine: Engine
) -> tuple[FederationState, Mapping[int, str]]:
    """Return the state with rows for these clients, and why others have none; they cannot take part in this round."""
    new = np.setdiff1d(np.fromiter(clients, dtype=np.int64), state.clients).tolist()
    if not new:
        return state, {}
    answers = {answer.client: answer for answer in engine.introduce(new)}
    refused, profiles = {}, []
    for client in new:
        answer = answers.get(client, Refusal(client, "did not introduce itself"))
        if reason := _refusal(answer, settings, engine):
            refused[client] = reason
        elif isinstance(answer, ClientProfile):
            profiles.append(answer)
    return (_with_rows(state, profiles, settings) if profiles else state), refused


def _refusal(answer: ClientProfile | Refusal, settings: Settings, engine: Engine) -> str | None:
    if isinstance(answer, Refusal):
        return answer.reason
    exact = settings.target.count_epsilon is None
    return profile_refusal(answer, engine.server.num_classes, exact, settings.hides_counts and exact)


def _with_rows(state: FederationState, profiles: Sequence[ClientProfile], settings: Settings) -> FederationState:
    """Return the state with rows for clients that it has none for."""
    clients = np.concatenate([state.clients, [profile.client for profile in profiles]]).astype(np.int64)
    order = np.argsort(clients)
    new = np.argsort(order)[len(state.clients) :]  # the rows that the new clients get

    def merged(known: Array | None, added: Array) -> Array | None:
        return None if known is None else np.concatenate([known, added])[order]

    classes, rule = state.target.shape[1], settings.importance_sampling
    told = [profile.class_counts for profile in profiles if profile.class_counts is not None]
    counts = None if state.counts is None else merged(state.counts, np.stack(told))
    shares = settings.target.client_shares(profiles, classes, state.num_clients)
    target = settings.target.revised(np.concatenate([state.target, shares])[order], counts)
    probabilities = state.probabilities
    if rule is not None and probabilities is not None:
        rows = zip(told, target[new], strict=True)
        probabilities = merged(probabilities, np.stack([rule.class_probabilities(c, t) for c, t in rows]))
    return replace(
        state,
        clients=clients[order],
        target=target,
        sizes=np.concatenate([state.sizes, [profile.num_samples for profile in profiles]]).astype(np.int64)[order],
        asked=np.concatenate([state.asked, np.zeros(len(profiles), dtype=np.int64)])[order],
        counts=counts,
        probabilities=probabilities,
        lipschitz=merged(state.lipschitz, np.full((len(profiles), classes), np.nan)),
    )
