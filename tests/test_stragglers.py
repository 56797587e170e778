"""Rounds that close without slow clients: who is late, what that costs, and what it leaves unchanged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isfl.errors import UserError
from isfl.experiment.metrics import metrics_of
from isfl.experiment.run import LocalHost, resume, run
from isfl.federation import FederationState, RoundReport, Settings, run_round, start
from isfl.federation.participation import participants
from isfl.federation.stragglers import Arrival, Stragglers, arrivals, asked_count, closing
from isfl.federation.values import ClientUpdate
from isfl.problem.config import config_from
from tests.resumable import config, outcome, stop_after
from tests.worlds import COUNTS, Meddling, engine_of, federate, same_bits, settings_of

CLIENTS = 6
SLOW = {"median": 10.0, "spread": 0.8}
ROUNDS = {"rounds": 4, "local_epochs": 1}


def settings_with(participation: float = 0.5, **stragglers: Any) -> Settings:
    return settings_of("isfl", training={**ROUNDS, "participation": participation}, stragglers=stragglers)


def six(settings: Settings, **options: Any) -> tuple[FederationState, list[RoundReport]]:
    """Run all rounds with six clients."""
    return federate(settings, counts=COUNTS * 2, **options)


def seconds_of(settings: Settings, report: RoundReport) -> dict[int, float]:
    assert settings.stragglers is not None
    found = arrivals(settings.stragglers, settings.seed, report.round, report.participants)
    return {client: arrival.seconds for client, arrival in found.items()}


# ---------------------------------------------------------------- when a round closes


def slow_closing(
    times: dict[int, float], usable: set[int], needed: int, deadline: float | None
) -> tuple[float, set[int]]:
    """Return the end of a round and who is late, by going through the answers one by one."""
    heard: set[int] = set()
    now, count = 0.0, 0
    for client in sorted(times, key=times.__getitem__):
        if deadline is not None and times[client] > deadline:
            return deadline, times.keys() - heard
        now = times[client]
        heard.add(client)
        count += client in usable
        if count == needed:
            break
    return now, times.keys() - heard


@given(
    times=st.lists(st.integers(1, 1000), min_size=1, max_size=8, unique=True),
    bits=st.integers(0, 255),
    needed=st.integers(1, 8),
    deadline=st.none() | st.integers(1, 1000),
)
def test_a_round_closes_as_if_the_answers_were_read_one_by_one(
    times: list[int], bits: int, needed: int, deadline: int | None
) -> None:
    arrived = {client: Arrival(float(time), 0.0) for client, time in enumerate(times)}
    usable = {client for client in arrived if bits >> client & 1}
    found = closing(arrived, usable, needed, deadline)
    expected = slow_closing({k: a.seconds for k, a in arrived.items()}, usable, needed, deadline)
    assert (found.seconds, set(found.late)) == expected


@pytest.mark.parametrize(
    ("share", "needed", "clients", "asked"),
    [(0.0, 7, 20, 7), (0.1, 50, 90, 55), (0.3, 10, 20, 13), (0.25, 3, 20, 4), (0.9, 2, 3, 3)],
)
def test_a_round_asks_the_share_more_than_it_needs_rounded_up(
    share: float, needed: int, clients: int, asked: int
) -> None:
    assert asked_count(Stragglers(over_selection=share), needed, clients) == asked


def test_latencies_are_log_normal_by_round_and_by_client() -> None:
    def logarithms(spread: float, client_spread: float) -> np.ndarray:
        drawn = {"median": 10.0, "spread": spread, "client_spread": client_spread}
        slow = Stragglers.model_validate({"simulated": drawn})
        found = [arrivals(slow, 0, round, range(60)) for round in range(1, 41)]
        return np.log([[row[k].seconds for k in range(60)] for row in found])

    by_round, by_client = logarithms(0.5, 0.0), logarithms(0.0, 0.7)
    assert by_round.std() == pytest.approx(0.5, rel=0.05) and by_round.mean() == pytest.approx(math.log(10), abs=0.05)
    assert np.ptp(by_client, axis=0).max() == 0, "a slow client is slow in every round"
    assert by_client[0].std() == pytest.approx(0.7, rel=0.2)


# ---------------------------------------------------------------- rounds


def test_a_table_that_neither_asks_more_nor_closes_early_changes_no_bit() -> None:
    plain = settings_of("isfl", training={**ROUNDS, "participation": 0.5})
    waiting = settings_with(simulated=SLOW)
    before, after = six(plain), six(waiting)
    assert same_bits(before[0], after[0])
    assert [r.participants for r in before[1]] == [r.participants for r in after[1]]
    assert all(r.late == () and r.simulated_seconds is None for r in before[1])
    for report in after[1]:
        assert report.simulated_seconds == max(seconds_of(waiting, report).values()) and report.late == ()


def test_over_selection_without_latencies_aggregates_exactly_as_many_as_needed() -> None:
    settings = settings_with(over_selection=0.5)
    _, reports = six(settings)
    for report in reports:
        assert len(report.participants) == 5 and len(report.late) == 2
        assert report.update_norm.keys() == set(report.participants) - set(report.late)
        assert report.refused == {} and report.simulated_seconds is None
    assert len({report.late for report in reports}) > 1, "the order is another one in every round"


def test_clients_of_equal_latency_are_as_many_as_needed_too() -> None:
    _, reports = six(settings_with(over_selection=0.5, simulated={"median": 10.0, "spread": 0.0}))
    assert all(len(report.update_norm) == 3 and report.simulated_seconds == 10 for report in reports)


def test_over_selection_leaves_the_slowest_out_and_the_round_ends_with_the_last_needed() -> None:
    settings = settings_with(over_selection=0.5, simulated=SLOW)
    _, reports = six(settings)
    for report in reports:
        seconds = seconds_of(settings, report)
        by_time = sorted(seconds, key=seconds.__getitem__)
        assert set(report.late) == set(by_time[3:]) and report.simulated_seconds == seconds[by_time[2]]


def test_a_deadline_excludes_exactly_the_clients_with_a_larger_latency() -> None:
    settings = settings_with(1.0, deadline=10.0, simulated=SLOW)
    _, reports = six(settings)
    for report in reports:
        seconds = seconds_of(settings, report)
        assert set(report.late) == {client for client in seconds if seconds[client] > 10}
        assert report.simulated_seconds == (10.0 if report.late else max(seconds.values()))
    assert {bool(report.late) for report in reports} == {True}


def test_the_late_clients_are_not_in_the_model() -> None:
    """The same bits as a round whose late clients had failed."""
    settings = settings_with(1.0, deadline=10.0, simulated=SLOW)
    settings = settings.model_copy(update={"training": settings.training.model_copy(update={"rounds": 1})})
    after, (report,) = six(settings)

    class Failing(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            return [update for update in updates if update.client not in report.late]

    without = settings.model_copy(update={"stragglers": None})
    expected, (other,) = six(without, kind=Failing)
    assert report.late and same_bits(after, expected)
    assert other.refused == dict.fromkeys(report.late, "did not answer")


def test_late_answers_are_paid_for() -> None:
    settings = settings_with(1.0, deadline=10.0, simulated=SLOW)
    _, reports = six(settings)
    for report in reports:
        assert report.late
        assert report.gradient_evaluations.training == 6 * 40
    one = reports[0].bytes_up / 6
    assert one == reports[0].bytes_down / 6 - 64, "a task also carries target and probabilities of four classes"


def test_an_unusable_answer_is_waited_past_and_named_unless_it_is_late() -> None:
    settings = settings_with(over_selection=0.5, simulated=SLOW)
    settings = settings.model_copy(update={"training": settings.training.model_copy(update={"rounds": 1})})
    seconds = seconds_of(settings, six(settings)[1][0])
    by_time = sorted(seconds, key=seconds.__getitem__)

    def spoiled(client: int) -> RoundReport:
        class Spoiling(Meddling):
            def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
                return [replace(u, num_samples=1) if u.client == client else u for u in updates]

        return six(settings, kind=Spoiling)[1][0]

    first, last = spoiled(by_time[0]), spoiled(by_time[4])
    assert first.refused.keys() == {by_time[0]} and set(first.late) == {by_time[4]}
    assert first.simulated_seconds == seconds[by_time[3]]
    assert last.refused == {} and set(last.late) == set(by_time[3:])


def test_a_round_without_answers_in_time_leaves_the_model_and_the_run_goes_on() -> None:
    settings = settings_with(1.0, deadline=8.0, simulated={"median": 10.0, "spread": 0.3, "never": 0.4})
    engine, seen = engine_of(settings, counts=COUNTS * 2), set[bool]()
    state = start(settings, engine)
    for _ in range(6):
        before = state
        state, report = run_round(state, settings, engine)
        empty = len(report.late) == 6
        assert same_bits(before, state) == empty == (report.train_loss is None) and report.refused == {}
        seen.add(empty)
    assert seen == {True, False}, "choose a deadline at which some rounds are empty"


def test_a_client_that_never_answers_does_not_train() -> None:
    settings = settings_with(1.0, deadline=1e6, simulated={"median": 1.0, "never": 0.5})
    _, reports = six(settings)
    for report in reports:
        never = {client for client, time in seconds_of(settings, report).items() if time == math.inf}
        assert set(report.late) == never
        assert report.gradient_evaluations.training == 40 * (6 - len(never))
    assert any(report.late for report in reports)


def test_a_late_client_remembers_what_it_trained() -> None:
    settings = settings_of(
        {"name": "isfl", "objective": {"kind": "moon"}},
        training={"rounds": 1},
        stragglers={"deadline": 10.0, "simulated": SLOW},
    )
    engine = engine_of(settings, counts=COUNTS * 2)
    _, (report,) = federate(settings, engine)
    assert report.late and all(engine.memory(client).local_model is not None for client in report.late)


def test_the_metrics_name_who_was_late_and_when_the_round_closed() -> None:
    _, (report, *_) = six(settings_with(over_selection=0.5, simulated=SLOW))
    line = json.loads(json.dumps(metrics_of(report)))
    assert line["late"] == list(report.late) and len(line["late"]) == 2
    assert line["simulated_seconds"] == report.simulated_seconds


# ---------------------------------------------------------------- the same bits everywhere

STRAGGLERS = {"over_selection": 0.5, "deadline": 12.0, "simulated": {**SLOW, "client_spread": 0.5, "never": 0.1}}


def test_two_workers_and_an_interruption_change_no_bit(tmp_path: Path) -> None:
    slow = config(stragglers=STRAGGLERS)
    run(slow, tmp_path / "whole")
    run(slow, tmp_path / "two", host=LocalHost(2))
    stop_after(tmp_path / "stopped", 3, settings=slow)
    resume(tmp_path / "stopped")
    whole = outcome(tmp_path / "whole")
    assert any(line["late"] for line in whole[2])
    assert outcome(tmp_path / "two") == whole == outcome(tmp_path / "stopped")


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"stragglers": {"deadline": 0.0}}, "stragglers.deadline: found 0.0; input should be greater than 0"),
        ({"stragglers": {"simulated": {"median": 1e308}}}, "stragglers.simulated.median: found 1e+308"),
        ({"stragglers": {"over_selection": -0.1}}, "stragglers.over_selection: found -0.1"),
        ({"stragglers": {"over_selection": 0.3}}, "use a participation of at most 0.769"),
        ({"stragglers": {"simulated": {}}}, "stragglers.simulated.median: is required"),
        ({"stragglers": {"simulated": {"median": 0.0}}}, "stragglers.simulated.median: found 0.0"),
        (
            {"stragglers": {"simulated": {"median": 1.0, "never": 0.1}}},
            "stragglers.simulated.never = 0.1 needs stragglers.deadline",
        ),
        (
            {"stragglers": {"deadline": 0.5, "simulated": {"median": 60.0, "spread": 0.5}}},
            "stragglers.deadline = 0.5: no client answers that soon",
        ),
        (
            {"stragglers": {"simulated": {"median": 1.0}}, "flower": {"own_data": True, "clients": 3}},
            "stragglers.simulated is a simulation, and flower.own_data = true has real clients",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        config_from(changes, "x")
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_the_participation_that_the_message_names_is_right() -> None:
    config_from({"stragglers": {"over_selection": 0.3}, "training": {"participation": 0.769}}, "x")


def test_a_deadline_that_simulated_clients_cannot_miss_is_refused_before_the_first_round() -> None:
    with pytest.raises(UserError, match=r"stragglers.deadline = 5: simulated clients answer at once; .*simulated"):
        six(settings_with(deadline=5.0))


def test_more_clients_are_asked_and_the_choice_is_random() -> None:
    settings = settings_with(0.4, over_selection=0.5)
    seen = [participants(settings, 10, round) for round in range(1, 40)]
    assert all(len(clients) == 6 for clients in seen) and {c for clients in seen for c in clients} == set(range(10))
