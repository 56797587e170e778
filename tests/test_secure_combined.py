"""Secure aggregation together with slow clients, and with clients that are introduced when they are first chosen."""

from __future__ import annotations

import pytest
import torch

from isfl.errors import UserError
from isfl.federation import FederationState, Settings, run_round, start
from tests.masking import COUNTS, secured
from tests.worlds import engine_of, federate, same_bits

SLOW = {"over_selection": 0.6, "deadline": 60.0, "simulated": {"median": 10.0, "spread": 0.8}}


def close(one: FederationState, other: FederationState) -> bool:
    return all(torch.allclose(one.model[name], other.model[name], atol=1e-4) for name in one.model)


def without_masks(settings: Settings) -> Settings:
    return settings.model_copy(update={"secure": None})


def test_late_clients_are_left_out_of_the_sum_and_the_masks_still_cancel() -> None:
    settings = secured("tempered", training={"rounds": 4, "participation": 0.6}, stragglers=SLOW)
    masked, reports = federate(settings, counts=COUNTS)
    plain, expected = federate(without_masks(settings), counts=COUNTS)
    assert [report.late for report in reports] == [report.late for report in expected]
    assert any(report.late for report in reports) and all(not report.refused for report in reports)
    assert close(masked, plain) and not same_bits(masked, plain)
    with engine_of(settings, COUNTS, workers=2) as engine:
        assert same_bits(masked, federate(settings, engine)[0])


def test_a_deadline_that_too_few_meet_aggregates_nothing_and_names_those_in_time() -> None:
    slow = {"deadline": 3.0, "simulated": {"median": 10.0, "spread": 0.8}}
    settings = secured("tempered", training={"rounds": 3}, stragglers=slow)
    _, reports = federate(settings, counts=COUNTS)
    for report in reports:
        in_time = set(report.participants) - set(report.late)
        assert len(in_time) < 3 and report.refused.keys() == in_time
        assert all("are too few" in reason for reason in report.refused.values())


@pytest.mark.parametrize("scheme", ["tempered", "moon"])
def test_secrets_of_late_clients_are_forgotten_in_the_next_round_also_if_they_are_not_chosen_again(scheme: str) -> None:
    """The last models that MOON's clients remember stay."""
    settings = secured(scheme, training={"rounds": 4, "participation": 0.3}, stragglers=SLOW)
    engine = engine_of(settings, COUNTS * 2)
    state, lost, asked = start(settings, engine), set[int](), set[int]()
    for _ in range(settings.training.rounds):
        state, report = run_round(state, settings, engine)
        secrets = {k: stored.small.secret.round for k, stored in engine.client_states.items()}
        assert {k for k, round in secrets.items() if round is not None} == set(report.late)
        assert {round for round in secrets.values() if round is not None} <= {report.round}
        lost |= set(report.late)
        asked |= set(report.participants)
    assert lost - set(report.participants), "some were lost and not chosen again"
    assert engine.client_states.keys() == (asked if scheme == "moon" else set(report.late))


def test_clients_are_masked_in_the_round_in_which_they_are_first_seen() -> None:
    settings = secured("calibrated", training={"rounds": 3, "participation": 0.6})
    masked, reports = federate(settings, counts=COUNTS)
    plain, _ = federate(without_masks(settings), counts=COUNTS)
    assert len(set(reports[0].participants)) == 3 < len(masked.clients), "some came later"
    assert close(masked, plain) and masked.clients.tolist() == plain.clients.tolist()


def test_a_round_that_closes_with_fewer_answers_than_the_threshold_is_refused_before_the_first() -> None:
    parts = {"training": {"participation": 0.6}, "stragglers": {"over_selection": 0.6}}
    settings = secured("tempered", {"threshold": 0.7}, **parts)
    with pytest.raises(UserError, match=r"threshold = 0.7 needs 4 of 5 clients, and a round closes with 3 answers"):
        start(settings, engine_of(settings, COUNTS))
