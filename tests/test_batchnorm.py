"""BatchNorm in a federation: averaged, kept local, replaced, and batches of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from isfl.federation import start
from isfl.federation.client import renew_at_client, train_client
from isfl.federation.normalization import frozen_statistics, statistic_names
from isfl.federation.values import ClientMemory, RenewTask, TrainTask
from tests.worlds import COUNTS, blobs, engine_of, federate, network, settings_of


@pytest.mark.parametrize("training", [{"batch_size": 1}, {"sampling_ratio": 0.01}, {"batchnorm": "local"}])
def test_single_samples_and_batchnorm(training: dict[str, Any]) -> None:
    settings = settings_of("isfl", training={"rounds": 2, **training})
    engine = engine_of(settings, counts=[(1, 0, 0, 0), (3, 3, 3, 3)], model=network(batchnorm=True))
    state, reports = federate(settings, engine)
    assert not reports[-1].refused
    assert all(torch.isfinite(value).all() for value in state.model.values())


def test_statistics_that_diverged_are_not_kept() -> None:
    scheme = {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}
    settings = settings_of(scheme, target={"kind": "uniform"}, training={"batchnorm": "local"})
    model, data = network(batchnorm=True), blobs(COUNTS[0], 100)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    poisoned = {n: torch.full_like(v, float("nan")) if v.is_floating_point() else v for n, v in weights.items()}
    target = np.full(4, 0.25)
    _, memory = train_client(model, TrainTask(1, 0, poisoned, target), data, settings, ClientMemory())
    report, memory = renew_at_client(
        model, RenewTask(1, 0, weights, target), data, blobs((4,) * 4, 7), settings, memory
    )
    assert report.lipschitz is not None and np.isnan(report.lipschitz).all()
    _, memory = train_client(model, TrainTask(2, 0, weights, target), data, settings, memory)
    assert all(torch.isfinite(value).all() for value in memory.statistics.values())


def test_local_statistics_never_leave_the_client() -> None:
    settings = settings_of("fedavg", training={"batchnorm": "local", "rounds": 2})
    engine = engine_of(settings, model=network(batchnorm=True))
    names = statistic_names(engine.model)
    state = start(settings, engine)
    update = engine.train([TrainTask(1, 0, state.model, state.target[0])])[0]
    assert not names & update.model.keys()
    assert engine.memory(0).statistics.keys() == names
    state, _ = federate(settings, engine)
    # The server's own statistics come from the public set, not from their initial values.
    assert not torch.equal(state.model["1.running_mean"], torch.zeros(8))


def test_local_statistics_are_restored_at_their_client() -> None:
    settings = settings_of("fedavg", training={"batchnorm": "local"})
    model, data = network(batchnorm=True), blobs(COUNTS[0], 100)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    mine = {"1.running_mean": torch.full((8,), 50.0), "1.running_var": torch.ones(8)}
    task = TrainTask(1, 0, weights, np.full(4, 0.25))
    _, memory = train_client(model, task, data, settings, ClientMemory(statistics=mine))
    assert (memory.statistics["1.running_mean"] > 10).all()


def test_averaged_statistics_are_averaged() -> None:
    settings = settings_of("fedavg", training={"rounds": 1})
    engine = engine_of(settings, model=network(batchnorm=True))
    first = start(settings, engine)
    updates = [engine.train([TrainTask(1, k, first.model, first.target[k])])[0] for k in range(3)]
    state, _ = federate(settings, engine_of(settings, model=network(batchnorm=True)))
    mean = sum(u.model["1.running_mean"].double() for u in updates) / 3
    torch.testing.assert_close(state.model["1.running_mean"].double(), mean, rtol=1e-6, atol=1e-7)


def test_group_norm_in_place_of_batch_norm() -> None:
    settings = settings_of("isfl", training={"batchnorm": "group"})
    engine = engine_of(settings, model=network(batchnorm=True))
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in engine.model.modules())
    assert any(isinstance(m, nn.GroupNorm) for m in engine.model.modules())
    _, reports = federate(settings, engine)
    assert reports[-1].rho.used is not None


def test_a_batch_that_fails_leaves_batchnorm_in_training_mode() -> None:
    model = network(batchnorm=True).train()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), frozen_statistics(model, frozen=True):
        model(torch.zeros(1, 99))
    assert all(m.training for m in model.modules())
