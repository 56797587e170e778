"""Clients are never trusted: invalid updates are refused by name, and the round continues."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from isfl.engines import LocalEngine
from isfl.federation import start
from isfl.federation.client import train_client
from isfl.federation.values import ClientMemory, ClientUpdate, TrainTask
from tests.worlds import COUNTS, Meddling, blobs, engine_of, federate, network, same_bits, settings_of


def spoil(update: ClientUpdate, how: str) -> ClientUpdate:
    model = {name: value.clone() for name, value in update.model.items()}
    name = next(iter(model))
    if how == "NaN":
        model[name].view(-1)[0] = float("nan")
    elif how == "wrong shape":
        model[name] = model[name][:-1]
    elif how == "wrong type":
        model[name] = model[name].double()
    elif how == "missing":
        del model[name]
    elif how == "extra":
        model["intruder"] = torch.zeros(1)
    elif how == "lying count":
        return dataclasses.replace(update, num_samples=10**9)
    elif how == "infinite loss":
        return dataclasses.replace(update, train_loss=float("inf"))
    elif how == "no loss":
        return dataclasses.replace(update, train_loss=None)
    elif how == "short norms":
        return dataclasses.replace(update, gradient_norm=np.ones(1))
    elif how == "negative variance":
        return dataclasses.replace(update, gradient_variance=np.array([1.0, -1.0]))
    elif how == "unasked":
        return dataclasses.replace(update, client=77)
    return dataclasses.replace(update, model=model)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("NaN", "'0.weight' is not finite"),
        ("wrong shape", "'0.weight' has shape (7, 6) instead of (8, 6)"),
        ("wrong type", "float64"),
        ("missing", "lacks '0.weight'"),
        ("extra", "brings the unknown 'intruder'"),
        ("lying count", "claims 1000000000 samples where it announced 40"),
        ("infinite loss", "training loss of inf"),
        ("unasked", "was not asked"),
        ("no loss", "training loss of None"),
        ("short norms", "gradient norms that are not 2 finite"),
        ("negative variance", "gradient variances that are not 2 finite"),
    ],
)
def test_a_client_with_an_invalid_update_is_refused_by_name_and_the_round_continues(how: str, reason: str) -> None:
    class Hostile(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            return [spoil(u, how) if u.client == 1 else u for u in updates]

    class Silent(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            return [u for u in updates if u.client != 1]

    settings = settings_of("isfl", training={"rounds": 1}, diagnostics={"bound": True})
    with_hostile, (report,) = federate(settings, engine_of(settings, kind=Hostile))
    without, (silent,) = federate(settings, engine_of(settings, kind=Silent))
    assert reason in report.refused[77 if how == "unasked" else 1]
    assert silent.refused == {1: "did not answer"}
    assert same_bits(with_hostile, without)


@pytest.mark.parametrize("values", [np.ones(3), np.array([1.0, -1.0, 1.0, 1.0]), np.full(4, np.inf)])
def test_an_invalid_renewal_report_is_not_counted(values: Any) -> None:
    class Hostile(LocalEngine):
        def renew(self, tasks: Any) -> Any:
            return [dataclasses.replace(r, lipschitz=values) if r.client == 1 else r for r in super().renew(tasks)]

    scheme = {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}
    settings = settings_of(scheme, target={"kind": "uniform"}, diagnostics={"bound": True})
    _, reports = federate(settings, engine_of(settings, kind=Hostile))
    assert reports[-1].gradient_evaluations.sampling == 2 * 2 * 32
    assert reports[-1].bound is not None and reports[-1].bound.phi.shape == (2,)


def test_an_enormous_but_finite_gradient_norm_leaves_no_bound_and_no_crash() -> None:
    class Hostile(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            return [dataclasses.replace(u, gradient_norm=np.full(2, 1e200)) for u in updates]

    settings = settings_of("isfl", training={"rounds": 1}, diagnostics={"bound": True})
    with np.errstate(over="ignore"):
        _, (report,) = federate(settings, engine_of(settings, kind=Hostile))
    assert report.bound is None and report.drift is None


def test_gradient_norms_that_were_not_asked_for_are_refused() -> None:
    class Talkative(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            return [dataclasses.replace(u, gradient_norm=np.ones(2)) if u.client == 1 else u for u in updates]

    settings = settings_of("isfl", training={"rounds": 1})
    _, (report,) = federate(settings, engine_of(settings, kind=Talkative))
    assert report.refused == {1: "reports gradient norms that it was not asked for"}


def test_a_server_step_that_diverges_is_not_taken() -> None:
    class Huge(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            return [dataclasses.replace(u, model={n: v * 0 + 3e38 for n, v in u.model.items()}) for u in updates]

    settings = settings_of({"aggregation": {"rule": "momentum", "lr": 1000.0}}, training={"rounds": 2})
    engine = engine_of(settings, kind=Huge)
    state, reports = federate(settings, engine)
    assert all(torch.equal(state.model[n], value) for n, value in engine.server.initial_model().items())
    assert set(reports[-1].refused.values()) == {"the aggregate is not finite"}


def test_each_client_must_introduce_itself_exactly_once() -> None:
    class Forgetful(LocalEngine):
        def introduce(self, clients: Any = None) -> Any:
            return [dataclasses.replace(profile, client=0) for profile in super().introduce(clients)]

    settings = settings_of("fedavg")
    with pytest.raises(ValueError, match=r"each once; found \[0, 0, 0\]"):
        start(settings, engine_of(settings, kind=Forgetful))


def test_a_round_without_an_accepted_update_keeps_the_model() -> None:
    class Dead(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            return []

    settings = settings_of("isfl", training={"rounds": 2})
    engine = engine_of(settings, kind=Dead)
    state, reports = federate(settings, engine)
    assert all(torch.equal(state.model[n], value) for n, value in engine.server.initial_model().items())
    assert reports[-1].train_loss is None and len(reports[-1].refused) == 3


def test_a_client_that_diverged_once_recovers() -> None:
    """MOON remembers the previous local model; a NaN in it would spoil all later rounds."""
    settings = settings_of({"name": "moon"})
    model, data = network(), blobs(COUNTS[0], 100)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    poisoned = {name: torch.full_like(value, float("nan")) for name, value in weights.items()}
    target = np.full(4, 0.25)
    update, memory = train_client(model, TrainTask(1, 0, poisoned, target), data, settings, ClientMemory())
    assert not all(torch.isfinite(value).all() for value in update.model.values())
    update, memory = train_client(model, TrainTask(2, 0, weights, target), data, settings, memory)
    assert all(torch.isfinite(value).all() for value in update.model.values())
    assert memory.local_model is not None
