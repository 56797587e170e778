"""Clients that start from independent random weights, as in the authors' code."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isfl.errors import UserError
from isfl.federation.initial import initialise
from isfl.federation.values import TrainTask, Weights
from isfl.models import ModelSettings, build_model
from tests.grids import config_of, federation_of, rounds, run_locally
from tests.grids import engine_of as flower_engine_of
from tests.refusals import refusal
from tests.worlds import engine_of, federate, network, same_bits, settings_of

NOWHERE = {"kind": "sgd", "lr": 1e-40}
"""A step too small to change any weight: a client returns the weights it started from."""


def starts(round: int, seed: int = 0, initial: str = "independent", workers: int = 1, **training: Any) -> list[Weights]:
    """Return the initial weights of three clients in a round, and the server's."""
    settings = settings_of(
        "fedavg", seed, training={"initial_models": initial, "optimizer": NOWHERE, "local_epochs": 1, **training}
    )
    with engine_of(settings, model=network(), workers=workers) as engine:
        server = engine.server.initial_model()
        updates = engine.train([TrainTask(round, k, server, np.full(4, 0.25), None) for k in range(3)])
    return [*(update.model for update in sorted(updates, key=lambda update: update.client)), server]


def equal(one: Weights, other: Weights) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_every_client_starts_the_first_round_from_its_own_weights() -> None:
    for one, other in itertools.combinations(starts(round=1), 2):  # the server's are among them
        assert all(not torch.equal(value, other[name]) for name, value in one.items())


def test_shared_models_and_later_rounds_start_from_the_servers() -> None:
    for *clients, server in (starts(round=1, initial="shared"), starts(round=2), starts(round=3)):
        assert all(equal(client, server) for client in clients)


def test_initial_weights_are_a_function_of_seed_and_client() -> None:
    first, again, other = starts(1, seed=0), starts(1, seed=0), starts(1, seed=1)
    assert all(equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(equal(a, b) for a, b in zip(first[:3], other[:3], strict=True))
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert all(equal(a, b) for a, b in zip(first, starts(1, workers=2), strict=True))
    assert torch.equal(torch.get_rng_state(), state), "torch's generator is left alone"


@pytest.mark.parametrize("name", ["resnet8", "small-cnn", "mlp"])
def test_independent_weights_are_distributed_like_those_of_a_new_model(name: str) -> None:
    """The scale of every layer is that of a new model, biases included; the server's weights are not used."""
    settings = ModelSettings(name=name, width=0.5)
    model, fresh = (build_model(settings, (3, 32, 32), 10, seed) for seed in (0, 1))
    with torch.no_grad():
        for value in model.state_dict().values():
            value.fill_(7)
    initialise(model, seed=0, client=3)
    for (key, value), expected in zip(model.state_dict().items(), fresh.state_dict().values(), strict=True):
        if expected.is_floating_point() and len(expected.unique()) > 1:
            assert float(value.abs().max()) == pytest.approx(float(expected.abs().max()), rel=0.5), key
            assert not torch.equal(value, expected), key
        else:
            assert torch.equal(value, expected), f"{key}: BatchNorm starts with its usual values"


def test_the_server_averages_independent_models_after_training() -> None:
    clients = starts(round=1)[:3]
    settings = settings_of("fedavg", training={"initial_models": "independent", "optimizer": NOWHERE, "rounds": 1})
    state, _ = federate(settings)
    for name, value in state.model.items():  # three clients of forty samples
        torch.testing.assert_close(value, torch.stack([client[name] for client in clients]).mean(0))


@pytest.mark.parametrize("scheme", ["isfl", "fedprox", "moon"])
def test_independent_models_give_the_same_bits_for_any_number_of_workers(scheme: str) -> None:
    settings = settings_of(scheme, training={"initial_models": "independent"})
    states = []
    for workers in (1, 2):
        with engine_of(settings, model=network(batchnorm=True, dropout=0.2), workers=workers) as engine:
            states.append(federate(settings, engine)[0])
    assert same_bits(*states)
    assert not same_bits(states[0], federate(settings_of(scheme), model=network(batchnorm=True, dropout=0.2))[0])


def test_flower_nodes_start_from_the_same_weights(tmp_path: Path) -> None:
    config = config_of("isfl", training={"initial_models": "independent"})
    expected, _ = run_locally(config)
    found, reports = rounds(config, flower_engine_of(config, federation_of(tmp_path), tmp_path))
    assert all(report.refused == {} for report in reports)
    assert same_bits(expected, found)


class Scale(nn.Module):
    """A parameter without a method that draws it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def scaled_model(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), Scale(), nn.Linear(int(np.prod(shape)), classes))


def test_a_layer_that_cannot_be_reinitialised_is_refused_and_nothing_changes() -> None:
    model = scaled_model((4,), 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UserError, match="the layer Scale has parameters but no method reset_parameters") as caught:
        initialise(model, 0, 0)
    assert "\n" not in str(caught.value)
    assert equal(before, model.state_dict())


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_with_such_a_layer_ends_with_one_line(
    jobs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = (f"model.name={__name__}:scaled_model", "training.initial_models=independent")
    line = refusal(tmp_path, capsys, *changes, jobs=jobs)
    assert "training.initial_models = 'independent': the layer Scale has parameters" in line and "'shared'" in line


def test_an_unknown_choice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "training.initial_models: found 'own'" in refusal(tmp_path, capsys, "training.initial_models=own")


def test_frozen_layers_keep_their_weights() -> None:
    """A pretrained part that is not trained must keep its weights."""
    model = network()
    first, *_, last = model.children()
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    first.requires_grad_(False)
    kept, redrawn = first.weight.clone(), last.weight.clone()
    initialise(model, seed=0, client=1)
    assert torch.equal(first.weight, kept) and not torch.equal(last.weight, redrawn)
