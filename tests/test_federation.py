"""Rounds: participation, determinism, and what a round costs."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from isfl.federation import FederationState, run_round, start
from isfl.federation import aggregations as aggregation_module
from isfl.federation import round as round_module
from isfl.federation.optimizers.adam import AdamStepper
from isfl.federation.optimizers.sgd import SGDStepper
from isfl.federation.participation import participants
from isfl.federation.training import batches
from isfl.federation.values import ClientUpdate, TrainTask, payload_bytes
from tests.worlds import (
    AGGREGATIONS,
    Meddling,
    engine_of,
    federate,
    network,
    same_bits,
    settings_of,
)


def test_full_participation_written_as_a_share_is_full_participation() -> None:
    settings = settings_of("isfl", training={"participation": 1.0})
    assert participants(settings, 3, 1) == [0, 1, 2]
    # 0.9 is rounded up to all clients: the same rounds as with full participation.
    assert same_bits(federate(settings)[0], federate(settings_of("isfl", training={"participation": 0.9}))[0])


def test_clients_that_are_absent_keep_their_probabilities() -> None:
    settings = settings_of("isfl", training={"participation": 0.67, "rounds": 1})
    engine = engine_of(settings)
    before = start(settings, engine)
    after, report = run_round(before, settings, engine)
    assert before.probabilities is not None and after.probabilities is not None
    changed = np.abs(after.probabilities - before.probabilities).max(axis=1) > 1e-9
    assert changed.tolist() == [k in report.participants for k in range(3)] and not changed.all()


def test_a_client_whose_model_is_the_global_model_keeps_its_probabilities() -> None:
    """The only participant of a round is the aggregate: there is no difference to measure `L` on."""
    settings = settings_of("isfl", training={"participation": 0.34, "rounds": 1})
    engine = engine_of(settings)
    before = start(settings, engine)
    after, report = run_round(before, settings, engine)
    assert len(report.participants) == 1 and report.rho.used is None and report.bound is None
    np.testing.assert_array_equal(after.probabilities, before.probabilities)


def test_every_client_participates_in_some_round() -> None:
    settings = settings_of("fedavg", training={"participation": 0.2})
    seen = [participants(settings, 10, r) for r in range(1, 60)]
    assert all(len(chosen) == 2 for chosen in seen)
    assert set(itertools.chain(*seen)) == set(range(10))


def test_the_same_seed_gives_the_same_bits_and_another_seed_different_ones() -> None:
    scheme = {"name": "isfl", "objective": {"kind": "moon"}}
    model = network(batchnorm=True, dropout=0.3)
    one, two = (federate(settings_of(scheme), model=model) for _ in range(2))
    other, _ = federate(settings_of(scheme, seed=1), model=model)
    assert same_bits(one[0], two[0])
    for ours, theirs in zip(one[1], two[1], strict=True):
        assert all((ours.probabilities[k] == theirs.probabilities[k]).all() for k in ours.probabilities)
    assert not same_bits(one[0], other)


def test_the_global_random_state_is_neither_used_nor_changed() -> None:
    settings, model = settings_of("isfl"), network(dropout=0.3)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.random.get_rng_state()
    one, _ = federate(settings, model=model)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    two, _ = federate(settings, model=model)
    assert same_bits(one, two)


class Reversed(Meddling):
    """Trains the clients in reverse order and returns their updates in that order."""

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate]:
        return super().train(list(reversed(tasks)))


@pytest.mark.parametrize("aggregation", [*AGGREGATIONS, "clipped", "multi-krum", "public-loss"])
def test_the_order_of_clients_does_not_matter(aggregation: str) -> None:
    settings = settings_of({"name": "isfl", "aggregation": {"rule": aggregation}})
    model = network(batchnorm=True, dropout=0.2)
    forward, _ = federate(settings, model=model)
    backward, _ = federate(settings, engine_of(settings, model=model, kind=Reversed))
    assert same_bits(forward, backward)


def test_sums_run_by_client_id_in_any_order_of_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rounding makes the order of a sum visible, it must not be the order of arrival."""
    orders: list[list[int]] = []
    real = aggregation_module.aggregate

    def note(rule: Any, current: Any, updates: Any, *rest: Any) -> Any:
        orders.append([update.client for update in updates])
        return real(rule, current, updates, *rest)

    monkeypatch.setattr(round_module, "aggregate", note)
    settings = settings_of("isfl")
    federate(settings, engine_of(settings, kind=Reversed))
    assert orders == [[0, 1, 2]] * 3


def test_a_parameter_with_two_names_is_updated_under_both() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.b(torch.relu(self.a(x))))
            return out

    settings = settings_of({"aggregation": {"rule": "momentum", "lr": 0.5}}, training={"rounds": 2})
    state, _ = federate(settings, model=Tied())
    assert torch.equal(state.model["a.weight"], state.model["b.weight"])


def test_the_sampling_ratio_shortens_epochs() -> None:
    for ratio, samples in ((1.0, 3 * 2 * 40), (0.25, 3 * 2 * 10)):
        _, reports = federate(settings_of("isfl", training={"sampling_ratio": ratio, "rounds": 1}))
        assert reports[0].gradient_evaluations.training == samples


def test_the_gradient_evaluations_of_sampling_are_counted() -> None:
    """ISFL: (K + 1) |D_L| at the server, 2 K |D_L| at the clients. ISFedAvg: |D_G| from the second round on.

    Bias-variance: |D_L|.
    """
    public, everyone = 32, 120
    for scheme, target, expected in (
        ("fedavg", "global", [0, 0]),
        ("isfl", "global", [4 * public] * 2),
        ({"name": "isfl", "sampling": {"where": "client"}}, "uniform", [4 * public] * 2),
        ({"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}, "uniform", [6 * public] * 2),
        ("isfedavg", "global", [0, everyone]),
        ("bias-variance", "global", [public] * 2),
    ):
        _, reports = federate(settings_of(scheme, target={"kind": target}, training={"rounds": 2}))
        assert [r.gradient_evaluations.sampling for r in reports] == expected


def test_diagnostics_measure_rho_for_any_scheme_and_count_separately() -> None:
    _, reports = federate(settings_of("fedavg", diagnostics={"lipschitz": True}))
    rho = reports[-1].rho
    assert rho.used is not None and rho.minimum is not None
    assert reports[-1].gradient_evaluations.sampling == 0
    assert reports[-1].gradient_evaluations.diagnostics == 4 * 32
    assert same_bits(
        federate(settings_of("fedavg"))[0], federate(settings_of("fedavg", diagnostics={"lipschitz": True}))[0]
    )


def test_bytes_are_those_of_the_values_sent() -> None:
    settings = settings_of("isfl", training={"rounds": 1})
    engine = engine_of(settings)
    model = payload_bytes(engine.server.initial_model())
    _, (report,) = federate(settings, engine)
    assert report.bytes_up == 3 * model
    assert report.bytes_down == 3 * (model + 2 * 4 * 8)  # target and probabilities
    _, (measured,) = federate(settings_of("isfl", training={"rounds": 1}, diagnostics={"bound": True}))
    statistics = 2 * settings.training.local_epochs * 8
    assert measured.bytes_up == 3 * (model + statistics)


def test_state_consists_of_plain_values() -> None:
    def leaves(value: Any) -> set[type]:
        if dataclasses.is_dataclass(value):
            return set().union(*(leaves(getattr(value, f.name)) for f in dataclasses.fields(value)))
        if isinstance(value, dict):
            return set().union(*(leaves(v) for v in value.values())) if value else set()
        return {type(value)}

    state, _ = federate(settings_of({"name": "isfl", "aggregation": {"rule": "adam"}}))
    assert isinstance(state, FederationState)
    assert leaves(state) <= {int, torch.Tensor, np.ndarray, type(None)}


def test_a_last_batch_of_one_joins_its_neighbour_and_drop_last_drops() -> None:
    def sizes(n: int, drop: bool) -> list[int]:
        return [len(b) for b in batches(np.arange(n), 4, drop)]

    assert sizes(9, False) == [4, 5]
    assert sizes(10, False) == [4, 4, 2]
    assert sizes(10, True) == [4, 4]
    assert sizes(8, True) == [4, 4]
    assert sizes(3, True) == [3]


@pytest.mark.parametrize(("kind", "cls"), [("sgd", SGDStepper), ("adam", AdamStepper)])
def test_each_client_gets_a_new_optimiser_each_round(kind: str, cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    original = cls.__init__

    def note(self: Any, settings: Any, parameters: Any) -> None:
        seen.append(settings.lr)
        original(self, settings, parameters)

    monkeypatch.setattr(cls, "__init__", note)
    federate(settings_of("fedavg", training={"optimizer": {"kind": kind, "lr": 0.02}, "rounds": 2}))
    assert seen == [0.02] * 6


def test_the_engine_does_not_share_models_between_clients() -> None:
    settings = settings_of("fedavg")
    engine = engine_of(settings)
    state = start(settings, engine)
    untouched = copy.deepcopy(state.model)
    updates = engine.train([TrainTask(1, k, state.model, state.target[k]) for k in range(2)])
    assert all(torch.equal(state.model[n], untouched[n]) for n in untouched)
    assert not torch.equal(updates[0].model["0.weight"], updates[1].model["0.weight"])
