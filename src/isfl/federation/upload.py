"""From tasks to updates that can be used: clients train, some answer too late, some answers cannot be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from isfl.federation.admission import Admission, admit, close_round
from isfl.federation.attacks import attacked
from isfl.federation.interface import Engine, ModelFacts
from isfl.federation.participation import participant_count
from isfl.federation.settings import Settings
from isfl.federation.stragglers import Arrival, arrivals
from isfl.federation.values import ClientUpdate, FederationState, TrainAnswer, TrainTask


def collect_trained(
    state: FederationState, tasks: Sequence[TrainTask], settings: Settings, engine: Engine
) -> Admission:
    """Let clients train; decide which of their updates can be used and which came too late."""
    arrived = _simulated_arrivals(tasks, settings, engine)
    answers = engine.train(_answered(tasks, arrived))
    return _admit_answers(tasks, answers, arrived, state, settings, engine.server.facts)


def _simulated_arrivals(tasks: Sequence[TrainTask], settings: Settings, engine: Engine) -> Mapping[int, Arrival]:
    """Return when the answers to these tasks arrive; nothing where the clock decides, or a round waits for all."""
    if settings.stragglers is None or engine.real_time or not tasks:
        return {}
    return arrivals(settings.stragglers, settings.seed, tasks[0].round, [task.client for task in tasks])


def _answered(tasks: Sequence[TrainTask], arrived: Mapping[int, Arrival]) -> list[TrainTask]:
    """Return the tasks without those of clients that never answer, which do not train."""
    return [task for task in tasks if task.client not in arrived or np.isfinite(arrived[task.client].seconds)]


def _admit_answers(
    tasks: Sequence[TrainTask],
    answers: Sequence[TrainAnswer],
    arrived: Mapping[int, Arrival],
    state: FederationState,
    settings: Settings,
    facts: ModelFacts,
) -> Admission:
    """Decide which answers can be aggregated, after hostile clients of a simulated attack have changed theirs.

    Those confer whose updates would be aggregated without the attack. If what one of them sends is refused, the round
    waits for a later client instead; if that one is hostile too, it sends what it trained.
    """
    needed = participant_count(settings, state.num_clients)
    admission = close_round(admit(tasks, answers, state, settings, facts), arrived, needed, settings)
    sent = attacked(settings.attack, settings.seed, admission.admitted, state.model, facts.parameters)
    if sent:
        crafted = [sent.get(a.client, a) if isinstance(a, ClientUpdate) else a for a in answers]
        admission = close_round(admit(tasks, crafted, state, settings, facts), arrived, needed, settings)
    return admission
