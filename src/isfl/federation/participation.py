"""Who takes part: the clients that a round asks, those that evaluate the model, and how often each was asked.

Every choice is a function of (seed, round), so that all engines choose the same clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from isfl.federation.privacy import Use
from isfl.federation.settings import MOST_LISTED, Settings
from isfl.federation.stragglers import asked_count
from isfl.federation.values import FederationState
from isfl.randomness import Purpose, generator


def participant_count(settings: Settings, clients: int) -> int:
    """Return how many answers a round needs: the share of the clients rounded half up, at least one."""
    return _share_of(settings.training.participation, clients)


def asked_in_round(settings: Settings, clients: int) -> int:
    """Return how many clients a round asks."""
    return asked_count(settings.stragglers, participant_count(settings, clients), clients)


def participants(settings: Settings, clients: int, round: int) -> list[int]:
    """Choose the clients that a round asks at random."""
    count = asked_in_round(settings, clients)
    return list(range(clients)) if count >= clients else _chosen(settings, Purpose.PARTICIPATION, clients, count, round)


def evaluators(settings: Settings, clients: int, round: int) -> Sequence[int]:
    """Choose the clients that evaluate the model on their data: all, or some at random."""
    share = settings.training.evaluate_clients
    if share == 1 or (share is None and clients <= MOST_LISTED):
        return range(clients)
    count = participant_count(settings, clients) if share is None else _share_of(share, clients)
    return _chosen(settings, Purpose.EVALUATION, clients, count, round)


def planned_use(settings: Settings, clients: int, repeated: int = 0) -> Use:
    """Return how often clients will be asked in all rounds of a run, some of them repeated."""
    times: Counter[int] = Counter()
    for round in range(1, settings.training.rounds + 1):
        times.update(participants(settings, clients, round))
    return Use(settings.training.rounds, asked_in_round(settings, clients), max(times.values()), repeated)


def use_so_far(settings: Settings, state: FederationState) -> Use:
    """Return how often clients have been asked."""
    most = int(state.asked.max(initial=0))
    return Use(state.round, asked_in_round(settings, state.num_clients), most, state.repeated or 0)


def _share_of(share: float, clients: int) -> int:
    """Return this share of the clients, rounded half up; at least one, unless the share is 0."""
    return max(1, int(np.floor(share * clients + 0.5))) if share > 0 else 0


def _chosen(settings: Settings, purpose: Purpose, clients: int, count: int, round: int) -> list[int]:
    chosen = generator(settings.seed, purpose, round=round).choice(clients, count, replace=False)
    return sorted(int(client) for client in chosen)
