"""Clients as Flower nodes: the same bits as the local engine, and no private values in messages."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message

from isfl.data.population import Population
from isfl.engines.flower.client import Evaluation
from isfl.engines.flower.engine import FlowerEngine
from isfl.engines.flower.node import Node
from isfl.engines.flower.wire import NUMBERS, decode, encode
from isfl.errors import UserError
from isfl.federation import run_round
from isfl.federation.round import training_task
from isfl.federation.values import ClientProfile, ClientUpdate, RenewalReport, TrainTask
from isfl.problem.problem import prepare
from tests.grids import (
    MEASURED_AT_CLIENT,
    PRIVATE,
    Federation,
    config_of,
    engine_of,
    federation_of,
    rounds,
    run_locally,
    sent,
)
from tests.worlds import bytes_drawn

# ------------------------------------------------------------ the same bits


@pytest.mark.parametrize(
    ("scheme", "changes"),
    [
        ("isfl", {}),
        ("moon", {}),
        ("fedavg", {"diagnostics": {"lipschitz": True}}),
        ("isfedavg", {}),
        ("isfl", {"diagnostics": {"bound": True}, "training": {"augment": ["crop", "flip"]}}),
        ("fedavg", {"training": {"initial_models": "independent", "schedule": {"kind": "step", "every": 1}}}),
        (PRIVATE, {"target": {"kind": "uniform"}, "training": {"participation": 0.7}}),
        (
            {**MEASURED_AT_CLIENT, "objective": {"kind": "moon"}},
            {"target": {"kind": "uniform"}, "training": {"batchnorm": "local", "participation": 0.7}},
        ),
        ({"name": "isfl", "aggregation": {"rule": "adam"}}, {"training": {"batchnorm": "group"}}),
        ("decaying", {"training": {"participation": 0.7}}),
        ("shrunk", {"target": {"kind": "noised", "epsilon": 1.0}}),
        ({"sampling": {"rule": "capped", "repeats": 3.0}}, {"training": {"local_epochs": 2, "sampling_ratio": 0.5}}),
        ("bias-variance", {"target": {"kind": "uniform"}, "training": {"participation": 0.7}}),
        ({"name": "bias-variance", "objective": {"calibrate": True}}, {"training": {"batchnorm": "local"}}),
        (
            {"name": "isfl", "aggregation": {"rule": "public-loss", "hostile": 0.4}},
            {"attack": {"kind": "replace", "share": 0.4}},
        ),
    ],
)
def test_nodes_give_the_bits_of_the_local_engine(scheme: Any, changes: dict[str, Any], tmp_path: Path) -> None:
    config = config_of(scheme, **changes)
    expected, expected_reports = run_locally(config)
    state, reports = rounds(config, engine_of(config, federation_of(tmp_path), tmp_path))
    assert state.model.keys() == expected.model.keys()
    assert all(torch.equal(state.model[name], value) for name, value in expected.model.items())
    for found, wanted in zip(reports, expected_reports, strict=True):
        assert found.refused == wanted.refused and found.train_loss == wanted.train_loss
        assert "attack" in changes or not found.refused
        assert found.standard is not None and wanted.standard is not None
        assert found.standard.total == wanted.standard.total and found.clients == wanted.clients
        assert np.array_equal(found.standard.confusion, wanted.standard.confusion)
        assert (found.update_norm, found.client_drift) == (wanted.update_norm, wanted.client_drift)
        assert found.rho == wanted.rho
        assert (found.drift, found.gradient_square) == (wanted.drift, wanted.gradient_square)
        assert (found.bytes_up, found.bytes_down) == (wanted.bytes_up, wanted.bytes_down)
        if scheme != "isfedavg":  # its probabilities are the client's business
            assert found.probabilities.keys() == wanted.probabilities.keys()
        for k, q in found.probabilities.items():
            assert np.array_equal(q, wanted.probabilities[k])


@pytest.mark.parametrize("scheme", ["moon", PRIVATE, {**MEASURED_AT_CLIENT, "objective": {"kind": "moon"}}])
def test_a_repeated_round_gives_the_same_bits(scheme: Any, tmp_path: Path) -> None:
    """The server was killed after the clients had trained: they return to the same round."""
    config = config_of(scheme, target={"kind": "uniform"})
    engine = engine_of(config, federation_of(tmp_path), tmp_path)
    before, _ = rounds(config, engine, 2)
    first, _ = run_round(before, config, engine)
    again = engine_of(config, federation_of(tmp_path), tmp_path)
    again.restore(before, {})
    second, _ = run_round(before, config, again)
    assert all(torch.equal(second.model[name], value) for name, value in first.model.items())
    past, _ = rounds(config, engine_of(config, federation_of(tmp_path / "new"), tmp_path / "new"), 3)
    assert all(torch.equal(past.model[name], value) for name, value in first.model.items())


# ------------------------------------------------------------ what crosses the wire


def test_values_survive_the_wire() -> None:
    model = {"w": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), "n": torch.tensor(7)}
    task = TrainTask(3, 1, model, np.array([0.1, 0.9]), None)
    back = decode(TrainTask, encode(task))
    assert (back.round, back.client, back.probabilities) == (3, 1, None)
    assert np.array_equal(back.target, task.target) and back.target.dtype == np.float64
    assert all(torch.equal(back.model[name], value) for name, value in model.items())
    assert back.model["n"].dtype == torch.int64 and back.model["n"].shape == ()


@pytest.mark.parametrize(
    ("scheme", "answers"),
    [(PRIVATE, 1), (MEASURED_AT_CLIENT, 2), ("shrunk", 1), ("capped", 1), ("bias-variance", 1)],
    ids=str,
)
def test_private_clients_send_nothing_about_their_labels(scheme: Any, answers: int, tmp_path: Path) -> None:
    config = config_of(scheme, target={"kind": "uniform"}, diagnostics={"bound": True})
    grid = Federation({1000 + k: Node(k, tmp_path) for k in range(3)})  # not simulated: their state is theirs
    rounds(config, engine_of(config, grid))
    allowed = {
        ClientProfile: {"client", "num_samples"},
        ClientUpdate: {part.name for part in dataclasses.fields(ClientUpdate)} - {"model"},
        RenewalReport: {part.name for part in dataclasses.fields(RenewalReport)},
    }
    problem = prepare(config)
    shapes = {name: tuple(value.shape) for name, value in problem.model.state_dict().items()}
    up = [content for direction, content in grid.wire if direction == "up"]
    # One introduction, then train (and renew) in three rounds; no client is asked to evaluate.
    assert len(up) == 3 + 3 * 3 * answers
    for content in up:
        assert content.keys() <= {NUMBERS, "model"}
        numbers = content[NUMBERS]
        assert isinstance(numbers, ConfigRecord) and any(numbers.keys() == keys for keys in allowed.values())
        for array in content.array_records.values():
            assert {name: tuple(value.numpy().shape) for name, value in array.items()} == shapes
        vectors = [np.asarray(value, dtype=float) for value in numbers.values() if isinstance(value, list)]
        for counts in (data.class_counts for data in problem.clients):
            for vector in vectors:
                assert vector.shape != counts.shape or not np.allclose(vector / vector.sum(), counts / counts.sum())
    texts = [str(content[NUMBERS]) for content in up]
    assert not any("rho" in text or "probabilities" in text for text in texts)
    models_down = [c for way, c in grid.wire if way == "down" and "model" in c]
    assert len(models_down) == 3 * 3 * answers and not any("public" in c for _, c in grid.wire)


def test_a_simulation_looks_at_class_counts_without_a_copy_of_the_clients_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of("uniform-is")
    engine = engine_of(config, federation_of(tmp_path), tmp_path)
    state, _ = rounds(config, engine, 1)
    mixes = [data.class_counts / len(data) for data in engine.problem.clients]
    monkeypatch.setattr(Population, "__getitem__", None)
    seen = engine.observe([training_task(state, k, None) for k in range(3)])
    np.testing.assert_array_equal([seen[k].shares for k in range(3)], mixes)


def test_clients_send_their_class_counts_once(tmp_path: Path) -> None:
    config = config_of("isfl")
    grid = federation_of(tmp_path)
    rounds(config, engine_of(config, grid))
    telling = [c for way, c in grid.wire if way == "up" and "class_counts" in c[NUMBERS]]
    assert len(telling) == 3
    told = [c for way, c in grid.wire if way == "down" and "model" in c and "probabilities" in c[NUMBERS]]
    assert len(told) == 9


def test_an_operator_can_keep_counts_private_whatever_the_server_asks(tmp_path: Path) -> None:
    grid = federation_of(tmp_path)
    grid.nodes[1000] = dataclasses.replace(grid.nodes[1000], private=True)
    said: list[str] = []
    with pytest.raises(UserError, match="2 of 3"):
        rounds(config_of("isfl"), engine_of(config_of("isfl"), grid, tell=said.append))
    assert any("keeps class counts private" in line for line in said)
    private = config_of(PRIVATE, target={"kind": "uniform"})
    assert rounds(private, engine_of(private, grid))[1][-1].refused == {}


def test_counts_that_an_operator_keeps_private_stay_private_for_any_epsilon(tmp_path: Path) -> None:
    """A large epsilon adds almost no noise, and many small ones could be averaged."""
    for epsilon, most, told in ((1e12, None, False), (1e12, 2.0, False), (1.0, 2.0, True)):
        config = config_of(PRIVATE, target={"kind": "noised", "epsilon": epsilon})
        grid = Federation({1000 + k: Node(k, tmp_path, private=True, max_epsilon=most) for k in range(3)})
        if told:
            assert len(engine_of(config, grid).introduce()) == 3
        else:
            with pytest.raises(UserError, match="0 of 3"):
                engine_of(config, grid).introduce()
            assert not any("class_counts" in content.get(NUMBERS, {}) for way, content in grid.wire if way == "up")


def test_private_nodes_do_not_evaluate_even_if_asked(tmp_path: Path) -> None:
    config = config_of("fedavg", training={"rounds": 1})
    node = Node(0, tmp_path, private=True)
    engine = engine_of(config, federation_of(tmp_path))
    content = encode(Evaluation(0, engine.server.initial_model()))
    content["isfl"] = engine._head()
    reply = Federation({}).answer(node, sent(Message(content, 1, "evaluate")))
    assert reply is not None and "does not evaluate" in str(reply.content["problem"]["reason"])


def test_noised_counts_are_drawn_once_and_cannot_be_averaged(tmp_path: Path) -> None:
    config = config_of(PRIVATE, target={"kind": "noised", "epsilon": 1.0})
    told = []
    for epsilon in (1.0, 1.0, 1.001):
        config = config_of(PRIVATE, target={"kind": "noised", "epsilon": epsilon})
        grid = Federation({1000 + k: Node(k, tmp_path) for k in range(3)})
        told.append(start_counts(engine_of(config, grid)))
    assert all(np.array_equal(told[0], again) for again in told[1:])
    others = Federation({1000 + k: Node(k, tmp_path / "elsewhere") for k in range(3)})
    assert not np.array_equal(told[0], start_counts(engine_of(config, others)))


def test_noise_on_counts_of_real_clients_is_the_entropy_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn, config = bytes_drawn(monkeypatch), config_of(PRIVATE, target={"kind": "noised", "epsilon": 1.0})
    start_counts(
        engine_of(config, Federation({1000: Node(0, tmp_path), 1001: Node(1, tmp_path), 1002: Node(2, tmp_path)}))
    )
    classes = prepare(config).public.num_classes
    assert drawn == [8 * classes] * 2 * 3, "two numbers for each count of three clients"
    drawn.clear()
    start_counts(engine_of(config, federation_of(tmp_path / "simulated"), tmp_path))
    assert drawn == []


def start_counts(engine: FlowerEngine) -> np.ndarray:
    """Return the class counts that clients send when they introduce themselves."""
    profiles = engine.introduce()
    return np.array([p.class_counts for p in profiles if isinstance(p, ClientProfile)], dtype=np.float64)
