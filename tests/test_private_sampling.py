"""Private ISFL: clients solve for their own probabilities, and the server learns nothing of their label mix."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from isfl.engines import LocalEngine
from isfl.federation import start
from isfl.federation.client import introduce
from isfl.federation.values import ClientUpdate, RenewTask, TrainTask, payload_bytes
from tests.worlds import COUNTS, blobs, engine_of, federate, network, same_bits, settings_of


@pytest.mark.parametrize("participation", [1.0, 0.67])
@pytest.mark.parametrize("solver", ["paper", "exact"])
@pytest.mark.parametrize("batchnorm", ["average", "local"])
def test_probabilities_computed_at_the_client_equal_those_of_the_server(
    participation: float, solver: str, batchnorm: str
) -> None:
    results = []
    for where, lipschitz_at in (("server", "server"), ("client", "server"), ("client", "client")):
        sampling = {"where": where, "lipschitz_at": lipschitz_at, "solver": solver, "target_floor": 0.3}
        settings = settings_of(
            {"name": "isfl", "sampling": sampling},
            target={"kind": "given", "shares": [0.4, 0.3, 0.2, 0.1]},
            training={"participation": participation, "rounds": 4, "batchnorm": batchnorm},
        )
        results.append(federate(settings, model=network(batchnorm=True)))
    server, server_reports = results[0]
    for client, client_reports in results[1:]:
        assert same_bits(server, client)
        for ours, theirs in zip(server_reports, client_reports, strict=True):
            assert ours.probabilities.keys() == theirs.probabilities.keys()
            for k in ours.probabilities:
                np.testing.assert_array_equal(ours.probabilities[k], theirs.probabilities[k])
            assert dataclasses.astuple(ours.rho) == pytest.approx(dataclasses.astuple(theirs.rho))


PRIVATE = {"name": "isfl", "sampling": {"where": "client"}}
MEASURED_AT_CLIENT = {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}


@pytest.mark.parametrize("scheme", [PRIVATE, MEASURED_AT_CLIENT], ids=["L at the server", "L at the client"])
def test_in_private_use_no_class_counts_reach_the_server(scheme: Any) -> None:
    settings = settings_of(scheme, target={"kind": "uniform"})
    engine = engine_of(settings)
    assert all(profile.class_counts is None for profile in engine.introduce())
    state, _ = federate(settings, engine)
    assert state.counts is None and state.probabilities is None


def test_the_papers_private_mode_sends_c_numbers_down_and_no_second_model() -> None:
    """From the second round on each task has the client's Lipschitz values; nothing is asked after the aggregation."""

    class Watched(LocalEngine):
        tasks: ClassVar[list[TrainTask]] = []

        def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate]:
            self.tasks.extend(tasks)
            return super().train(tasks)

        def renew(self, tasks: Any) -> Any:
            raise AssertionError("no second message in a round")

    settings = settings_of(PRIVATE, target={"kind": "uniform"}, training={"rounds": 2})
    engine = engine_of(settings, kind=Watched)
    model = payload_bytes(engine.server.initial_model())
    _, (first, second) = federate(settings, engine)
    assert all(task.lipschitz is None and task.probabilities is None for task in Watched.tasks[:3])
    for task in Watched.tasks[3:]:
        np.testing.assert_array_equal(task.lipschitz, first.lipschitz[task.client])
        assert task.probabilities is None
    assert (first.bytes_down, second.bytes_down) == (3 * (model + 4 * 8), 3 * (model + 2 * 4 * 8))
    assert first.bytes_up == second.bytes_up == 3 * model
    assert all(engine.memory(k).local_model is None for k in range(3))


def test_where_l_is_measured_at_the_client_it_must_be_solved_for_there() -> None:
    with pytest.raises(ValueError, match="lipschitz_at = 'client' is for clients that solve"):
        settings_of({"name": "isfl", "sampling": {"lipschitz_at": "client"}})


def test_in_private_use_the_server_learns_only_what_it_could_compute_itself() -> None:
    """rho would give the label mix away digit by digit: reports hold Lipschitz values and costs, nothing else."""
    settings = settings_of(MEASURED_AT_CLIENT, target={"kind": "uniform"})
    engine = engine_of(settings)
    state, target = start(settings, engine), np.full(4, 0.25)
    engine.train([TrainTask(1, k, state.model, target) for k in range(3)])
    local = [engine.memory(k).local_model for k in range(3)]
    reports = engine.renew([RenewTask(1, k, state.model, target) for k in range(3)])
    assert {f.name for f in dataclasses.fields(reports[0])} == {
        "client",
        "lipschitz",
        "dropped",
        "evaluations",
        "seconds",
    }
    known = engine.server.lipschitz([weights for weights in local if weights is not None], state.model).values
    np.testing.assert_array_equal(np.array([report.lipschitz for report in reports]), known)


def test_noised_counts_hide_the_counts_and_approach_the_shares_as_epsilon_grows() -> None:
    scheme = {"name": "isfl", "sampling": {"where": "client"}}
    truth = np.sum(COUNTS, axis=0) / np.sum(COUNTS)
    for epsilon, tolerance in ((1000.0, 0.001), (0.5, 0.2)):
        settings = settings_of(scheme, target={"kind": "noised", "epsilon": epsilon})
        profile = introduce(0, blobs(COUNTS[0], 100), settings, np.random.default_rng(0))
        assert profile.class_counts is not None and (profile.class_counts != COUNTS[0]).all()
        np.testing.assert_allclose(start(settings, engine_of(settings)).target[0], truth, atol=tolerance)
