"""Differential privacy in rounds that close without slow clients: who counts as asked, and what divides the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from isfl.federation import Settings
from isfl.federation.participation import participant_count, participants, planned_use
from isfl.federation.privacy import Use, clipped_difference, spent_epsilon
from isfl.federation.stragglers import Arrival, closing
from isfl.federation.values import ClientUpdate
from tests.test_stragglers import ROUNDS, six
from tests.worlds import COUNTS, Meddling, engine_of, federate, settings_of


def private(**parts: Any) -> Settings:
    return settings_of(
        {"name": "tempered", "aggregation": {"weights": "client"}},
        target={"kind": "uniform"},
        training={**ROUNDS, "participation": 0.5},
        **parts,
    )


def use(rounds: Sequence[Sequence[int]]) -> Use:
    """Return how often these rounds use the data of clients."""
    times = Counter(client for clients in rounds for client in clients)
    return Use(len(rounds), len(rounds[0]), max(times.values()))


def test_the_accountant_counts_every_client_that_was_asked() -> None:
    more, privacy = {"over_selection": 0.5}, {"clip": 0.5, "noise": 2.0}
    settings = private(stragglers=more, privacy=privacy)
    _, reports = six(settings)
    asked = [list(report.participants) for report in reports]
    assert settings.privacy is not None
    assert asked == [participants(settings, 6, round) for round in (1, 2, 3, 4)]
    assert [report.epsilon for report in reports] == [
        spent_epsilon(settings.privacy, 6, use(asked[: report.round])) for report in reports
    ]
    assert use(asked) == planned_use(settings, 6) and use(asked).each == 5
    in_time = [[c for c in report.participants if c not in report.late] for report in reports]
    assert reports[-1].epsilon is not None and reports[-1].epsilon > spent_epsilon(settings.privacy, 6, use(in_time))


def test_amplification_is_that_of_the_clients_asked_not_of_those_needed() -> None:
    privacy = {"clip": 0.5, "noise": 2.0, "amplified": True}
    needed, asked = (private(stragglers={"over_selection": o}, privacy=privacy) for o in (0.0, 0.5))
    assert asked.privacy is not None
    assert spent_epsilon(asked.privacy, 6, planned_use(asked, 6)) > spent_epsilon(
        asked.privacy, 6, planned_use(needed, 6)
    )


def test_the_private_mean_is_over_the_answers_needed() -> None:
    """Over-selection changes neither the scale of the mean nor that of its noise."""
    base = {"privacy": {"clip": 1e-3, "noise": 0.01}, "stragglers": {"over_selection": 0.5}}
    settings = private(**base)
    settings = settings.model_copy(update={"training": settings.training.model_copy(update={"rounds": 1})})
    sent: list[ClientUpdate] = []

    class Recording(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            sent.extend(updates)
            return updates

    engine = engine_of(settings, counts=COUNTS * 2, kind=Recording)
    initial = engine.server.initial_model()
    after, (report,) = federate(settings, engine)
    parts = [clipped_difference(u.model, initial, 1e-3) for u in sent if u.client not in report.late]
    assert len(parts) == participant_count(settings, 6) == 3 and len(sent) == 5
    for name, value in initial.items():
        moved = sum((part[name] for part in parts), torch.zeros_like(value, dtype=torch.double)) / 3
        torch.testing.assert_close(after.model[name].double() - value.double(), moved, atol=3e-5, rtol=0)


@given(
    times=st.lists(st.integers(1, 100), min_size=5, max_size=5, unique=True),
    other_time=st.integers(1, 100),
    client=st.integers(0, 4),
    needed=st.integers(1, 5),
    deadline=st.none() | st.integers(1, 100),
    fails=st.booleans(),
)
def test_a_client_whose_data_change_its_speed_exchanges_at_most_one_summand(
    times: list[int], other_time: int, client: int, needed: int, deadline: int | None, fails: bool
) -> None:
    """The sensitivity that the accountant assumes: one clipped update more and one less, `2 S`."""

    def summands(changed: bool) -> set[int]:
        arrived = {k: Arrival(float(time), k / 10) for k, time in enumerate(times)}
        usable = set(arrived)
        if changed:
            arrived[client] = Arrival(float(other_time), client / 10)
            usable -= {client} if fails else set()
        return usable - closing(arrived, usable, needed, deadline).late

    before, after = summands(False) - {client}, summands(True) - {client}
    assert len(before ^ after) <= 1
