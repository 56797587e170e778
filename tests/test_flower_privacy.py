"""Differential privacy with nodes: each counts what it sends, and a resumed deployment counts the round it repeats."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message

from isfl import layout
from isfl.engines.flower.client import PROBLEM
from isfl.engines.flower.messages import Connection
from isfl.engines.flower.node import LEDGER, LEDGER_DELTA, count_noised_update, node_of
from isfl.errors import UserError
from isfl.experiment.flower_runs import FlowerHost
from isfl.experiment.run import resume, run
from isfl.federation.introduction import introduce
from isfl.federation.privacy import Privacy, gaussian_epsilon, noised_update, privacy_noise
from isfl.federation.round import start, training_task
from isfl.federation.values import ClientUpdate, Refusal, TrainAnswer
from isfl.problem.config import Config
from tests.grids import RUN, Federation, config_of, engine_of, federation_of, own, rounds

NOISED: dict[str, Any] = {
    "scheme": {"name": "tempered", "aggregation": {"weights": "client"}},
    "target": {"kind": "uniform"},
    "model": {"name": "mlp", "width": 0.25},
    "privacy": {"clip": 1.0, "noise": 2.0, "at": "client"},
}
"""One answer is a Gaussian mechanism whose noise equals its sensitivity."""


def spent(answers: int) -> float:
    return gaussian_epsilon(1.0, LEDGER_DELTA, answers)


def limited(grid: Federation, epsilon: float | None) -> None:
    for number, node in grid.nodes.items():
        grid.nodes[number] = dataclasses.replace(node, max_update_epsilon=epsilon)


def asked_again(config: Config, grid: Federation, run: str = RUN) -> list[TrainAnswer]:
    """Return the answer of client 0 to a task of the first round, whatever it has answered before."""
    engine = engine_of(config, grid)
    engine.connection.__dict__["run"] = run
    state, _ = introduce(start(config, engine), [0], config, engine)
    return list(engine.train([training_task(state, 0, None)]))


# ---------------------------------------------------------------- what a node allows


def test_a_server_that_asks_again_and_again_meets_the_limit_of_the_operator(tmp_path: Path) -> None:
    """The same round, another round or another run: each answer has fresh noise, and each is counted."""
    config, grid = own(tmp_path, **NOISED)
    limited(grid, 1.001 * spent(3))
    answers = [asked_again(config, grid, run)[0] for run in (RUN, RUN, "f" * 32)]
    assert all(isinstance(answer, ClientUpdate) for answer in answers)
    models = [answer.model for answer in answers if isinstance(answer, ClientUpdate)]
    assert not any(torch.equal(models[0][name], models[1][name]) for name in models[0]), "fresh noise"
    (refused,) = asked_again(config, grid, "e" * 32)
    assert isinstance(refused, Refusal) and f"update 4 would spend {spent(4):.2f}" in refused.reason
    known = json.loads((tmp_path / "state" / "client-0" / LEDGER).read_text())
    assert known == {"sent": 3, "mu_squared": 3.0}, "what was refused cost nothing"


def test_updates_are_counted_without_a_limit_too_and_a_later_limit_knows_them(tmp_path: Path) -> None:
    config, grid = own(tmp_path, **NOISED)
    _, reports = rounds(config, engine_of(config, grid), 2)
    assert all(report.refused == {} for report in reports)
    limited(grid, 1.001 * spent(2))
    (refused,) = asked_again(config, grid)
    assert isinstance(refused, Refusal) and "update 3 would spend" in refused.reason


def test_updates_with_different_noise_add_up(tmp_path: Path) -> None:
    node = node_of({"partition-id": 0, "state-dir": str(tmp_path), "max-update-epsilon": 1.001 * spent(5)})
    count_noised_update(node, 1.0)  # as much as four with noise 2
    count_noised_update(node, 2.0)
    with pytest.raises(UserError, match=rf"max-update-epsilon = .* update 3 would spend {spent(6):.2f}"):
        count_noised_update(node, 2.0)


@pytest.mark.parametrize("privacy", [None, {"clip": 1.0, "noise": 2.0}], ids=["none", "at the server"])
def test_a_node_with_a_limit_sends_nothing_without_noise(privacy: dict[str, float] | None, tmp_path: Path) -> None:
    config, grid = own(tmp_path, **{**NOISED, "privacy": privacy})
    limited(grid, 10.0)
    with pytest.raises(UserError, match=r"its operator sends noised updates only: the run needs privacy.at = 'client'"):
        rounds(config, engine_of(config, grid), 1)
    assert all(set(content) == {PROBLEM} for way, content in grid.wire if way == "up")


def test_a_damaged_count_is_refused_and_a_simulated_node_has_none(tmp_path: Path) -> None:
    config, grid = own(tmp_path, **NOISED)
    asked_again(config, grid)
    (tmp_path / "state" / "client-0" / LEDGER).write_text("[")
    (refused,) = asked_again(config, grid)
    assert isinstance(refused, Refusal) and "its count of updates" in refused.reason and "damaged" in refused.reason
    simulated = config_of(**NOISED)
    rounds(simulated, engine_of(simulated, federation_of(tmp_path / "simulated"), tmp_path / "simulated"), 1)
    assert not list((tmp_path / "simulated").rglob(LEDGER))


@pytest.mark.parametrize("wrong", [0, -1, "many", True, float("inf")])
def test_a_limit_must_be_a_positive_number(wrong: object) -> None:
    with pytest.raises(UserError, match=r"max-update-epsilon = .* write a number above 0"):
        node_of({"partition-id": 0, "max-update-epsilon": wrong})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_a_client_whose_training_diverged_sends_noise_alone(value: float) -> None:
    """Numbers that are not finite would pass through any noise and tell that the data made training diverge."""
    current = {"a": torch.zeros(100), "b": torch.zeros(3)}
    local = {"a": torch.zeros(100), "b": torch.tensor([0.0, value, -value])}
    sent = noised_update(local, current, Privacy(clip=1.0, noise=1.0), privacy_noise(0, 1, real=False))
    assert all(bool(torch.isfinite(part).all()) for part in sent.values()) and float(sent["a"].std()) > 0.5


# ---------------------------------------------------------------- resumed deployments


class StopError(Exception):
    """The machine of the server stops."""


def host(grid: Federation, kind: str) -> FlowerHost:
    return FlowerHost(Connection(grid, RUN), {"kind": kind, "run": RUN})


def epsilons(out: Path) -> list[float]:
    return [json.loads(line)["epsilon"] for line in (out / layout.METRICS).read_text().splitlines()]


def interrupted(config: Config, grid: Federation, out: Path, after: int, kind: str = "deployment") -> None:
    """Stop a run while round `after + 1` is under way."""
    honest = grid.meddle

    def meddle(client: int, message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type == "train" and client == 2:
            begun.append(client)
            if len(begun) > after:
                raise StopError
        return reply

    begun: list[int] = []
    grid.meddle = meddle
    where = host(grid, kind)
    with pytest.raises(StopError):
        resume(out, host=where) if out.exists() else run(config, out, host=where)
    grid.meddle = honest


@pytest.mark.parametrize("at", ["client", "server"])
@pytest.mark.parametrize(("kind", "extra"), [("deployment", 1), ("simulation", 0)])
def test_a_resumed_deployment_counts_the_interrupted_round_twice(
    at: str, kind: str, extra: int, tmp_path: Path
) -> None:
    """Its clients have answered once already; a simulation repeats the noise, so that nothing new is revealed."""
    config, grid = own(tmp_path, **{**NOISED, "privacy": {**NOISED["privacy"], "at": at}})
    interrupted(config, grid, tmp_path / "run", after=1, kind=kind)
    resume(tmp_path / "run", host=host(grid, kind))
    assert epsilons(tmp_path / "run") == [spent(1), spent(2 + extra), spent(3 + extra)]


def test_every_resume_counts_also_before_the_first_checkpoint(tmp_path: Path) -> None:
    config, grid = own(tmp_path, **NOISED)
    for _ in range(3):
        interrupted(config, grid, tmp_path / "run", after=0)
    resume(tmp_path / "run", host=host(grid, "deployment"))
    assert epsilons(tmp_path / "run") == [spent(n + 3) for n in (1, 2, 3)]
    known = json.loads((grid.nodes[10].state / "client-0" / LEDGER).read_text())
    assert known["sent"] == 6, "the node has counted the same"


def test_a_budget_that_a_resume_would_exceed_stops_the_run(tmp_path: Path) -> None:
    budget: Mapping[str, Any] = {**NOISED["privacy"], "epsilon": 1.001 * spent(3)}
    config, grid = own(tmp_path, **{**NOISED, "privacy": budget})
    interrupted(config, grid, tmp_path / "run", after=1)
    before = len(grid.wire)
    with pytest.raises(UserError, match=r"3 rounds and 1 repeated after an interruption with privacy.noise = 2 spend"):
        resume(tmp_path / "run", host=host(grid, "deployment"))
    assert not any("model" in content for _, content in grid.wire[before:])
