"""Clients introduce themselves when they are first chosen, with the same bits as if all had done so at the start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from isfl import layout
from isfl.engines import LocalEngine
from isfl.errors import UserError
from isfl.experiment.checkpoints import Checkpoint, latest_checkpoint, save_checkpoint
from isfl.experiment.run import LocalHost, resume, run
from isfl.federation import FederationState, participation, run_round, start
from isfl.federation.targets import GlobalTarget, UniformTarget
from isfl.federation.values import ClientProfile, Refusal
from isfl.problem.problem import prepare
from isfl.randomness import Purpose
from tests.grids import PRIVATE, config_of, federation_of, rounds
from tests.grids import engine_of as flower_engine
from tests.resumable import config, outcome, stop_after
from tests.worlds import COUNTS, engine_of, federate, same_bits, settings_of

UNIFORM = {"kind": "uniform"}
AT_CLIENT = {"name": "isfl", "sampling": {"where": "client"}}
CROWD = COUNTS * 4
"""Twelve clients, of which three take part in a round."""
SOME = {"rounds": 4, "participation": 0.25}
SCHEMES: list[dict[str, Any]] = [
    {"scheme": "isfl", "target": UNIFORM},
    {"scheme": AT_CLIENT, "target": UNIFORM},
    {"scheme": {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}, "target": UNIFORM},
    {"scheme": "bias-variance", "target": {"kind": "given", "shares": [0.1, 0.2, 0.3, 0.4]}},
    {"scheme": "isfl", "target": {"kind": "given", "shares": [[0.1, 0.2, 0.3, 0.4], [0.25] * 4] * 6}},
]


def all_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every target ask all clients before the first round."""
    monkeypatch.setattr("isfl.federation.targets.UniformTarget.from_all_clients", True)
    monkeypatch.setattr("isfl.federation.targets.GivenTarget.from_all_clients", True)


@pytest.mark.parametrize("parts", SCHEMES)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_introduced_when_chosen_trains_as_if_it_had_been_at_the_start(
    parts: dict[str, Any], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(**parts, training=SOME)
    with engine_of(settings, CROWD, workers=workers) as engine:
        late, late_reports = federate(settings, engine)
    all_first(monkeypatch)
    early, early_reports = federate(settings, counts=CROWD)
    assert same_bits(late, early) and len(late.clients) < len(early.clients) == 12
    for one, other in zip(late_reports, early_reports, strict=True):
        assert one.participants == other.participants and one.refused == other.refused == {}
        assert (one.train_loss, one.rho, one.update_norm) == (other.train_loss, other.rho, other.update_norm)
        for client, q in one.probabilities.items():
            np.testing.assert_array_equal(q, other.probabilities[client])
    rows = early.rows(late.clients.tolist())
    for name in ("target", "sizes", "counts", "probabilities", "lipschitz"):
        np.testing.assert_array_equal(*(_rows(state, name, at) for state, at in ((late, slice(None)), (early, rows))))


def _rows(state: FederationState, name: str, at: Any) -> Any:
    values = getattr(state, name)
    return np.nan if values is None else values[at]


def test_nodes_introduced_when_chosen_train_as_if_they_had_been_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {
        "target": UNIFORM,
        "split": {"kind": "mixed", "clients": 6, "shard_size": 20, "nr": 0.8},
        "training": {"participation": 0.34, "rounds": 2},
    }
    config = config_of(PRIVATE, **changes)
    late, reports = rounds(config, flower_engine(config, federation_of(tmp_path / "late", clients=6)))
    all_first(monkeypatch)
    early, _ = rounds(config, flower_engine(config, federation_of(tmp_path / "early", clients=6)))
    local, _ = rounds(config, LocalHost().engine(prepare(config), config, tmp_path / "local"))
    assert same_bits(late, early) and same_bits(late, local)
    assert late.clients.tolist() == sorted({k for report in reports for k in report.participants})


def test_a_chosen_node_that_is_not_connected_is_refused_and_the_round_goes_on(tmp_path: Path) -> None:
    config = config_of(PRIVATE, target=UNIFORM)
    grid = federation_of(tmp_path)
    gone = grid.nodes.pop(1001)
    engine = flower_engine(config, grid)
    state, report = run_round(start(config, engine), config, engine)
    assert report.participants == (0, 1, 2) and report.refused == {1: "is not connected"}
    assert state.clients.tolist() == [0, 2]
    grid.nodes[1001] = gone
    state, report = run_round(state, config, engine)
    assert report.refused == {} and state.clients.tolist() == [0, 1, 2]


class Shy(LocalEngine):
    """Client 1 does not say who it is, client 2 says what cannot be right."""

    def introduce(self, clients: Sequence[int] | None = None) -> Any:
        answers: list[ClientProfile | Refusal] = list(super().introduce(clients))
        changed = {1: Refusal(1, "is asleep"), 2: ClientProfile(2, 40, np.array([40.0, 1.0, 0.0, 0.0]))}
        return [changed.get(answer.client, answer) for answer in answers]


def test_a_client_that_does_not_introduce_itself_is_refused_and_the_round_goes_on() -> None:
    settings = settings_of("isfl", target=UNIFORM)
    state, reports = federate(settings, engine_of(settings, kind=Shy))
    reason = "has class counts that do not add up to its 40 samples"
    assert all(report.refused == {1: "is asleep", 2: reason} for report in reports)
    assert all(report.participants == (0, 1, 2) for report in reports) and state.clients.tolist() == [0]


class Silent(LocalEngine):
    """No client says who it is."""

    def introduce(self, clients: Sequence[int] | None = None) -> Any:
        return []


def test_a_round_in_which_nobody_introduces_itself_keeps_the_model() -> None:
    settings = settings_of("isfl", target=UNIFORM)
    engine = engine_of(settings, kind=Silent)
    state, reports = federate(settings, engine)
    assert set(reports[-1].refused.values()) == {"did not introduce itself"} and reports[-1].train_loss is None
    assert all(bool((state.model[n] == v).all()) for n, v in engine.server.initial_model().items())


@pytest.mark.parametrize("rounds_done", [1, 2])
def test_a_resumed_run_introduces_the_rest_with_the_same_bits(rounds_done: int, tmp_path: Path) -> None:
    split = {"kind": "mixed", "clients": 8, "shard_size": 20, "nr": 0.8}
    settings = config(split=split, training={**_TRAINING, "participation": 0.25})
    run(settings, tmp_path / "whole")
    stop_after(tmp_path / "stopped", rounds_done, settings=settings)
    checkpoint = latest_checkpoint(tmp_path / "stopped")
    whole = latest_checkpoint(tmp_path / "whole")
    assert checkpoint is not None and whole is not None
    assert 0 < len(checkpoint.state.clients) < len(whole.state.clients), "some are first seen after the checkpoint"
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")


_TRAINING: dict[str, Any] = {"rounds": 5, "local_epochs": 1, "batch_size": 16, "batchnorm": "local"}


# ------------------------------------------------------------ targets


def test_given_shares_of_another_number_of_clients_are_refused_before_the_first_round() -> None:
    settings = settings_of("isfl", target={"kind": "given", "shares": [[0.25] * 4] * 2})
    with pytest.raises(UserError, match="give 4 numbers, or 3 rows of them, one per client"):
        start(settings, engine_of(settings))


def test_targets_say_whether_all_clients_come_first() -> None:
    assert not UniformTarget().from_all_clients and GlobalTarget().from_all_clients
    for kind, first in (("global", 3), ("uniform", 0), ("estimated", 0)):
        settings = settings_of("isfl", target={"kind": kind})
        assert len(start(settings, engine_of(settings)).clients) == first


# ------------------------------------------------------------ what does not grow


def test_privacy_does_not_draw_the_clients_of_earlier_rounds_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = participation._chosen

    def counted(settings: Any, purpose: Purpose, clients: int, count: int, round: int) -> list[int]:
        drawn.append(round)
        return real(settings, purpose, clients, count, round)

    monkeypatch.setattr(participation, "_chosen", counted)
    parts = {"privacy": {"clip": 1.0, "noise": 4.0}, "training": {"rounds": 6, "participation": 0.5}}
    equal = {"name": "fedavg", "aggregation": {"rule": "mean", "weights": "client"}}
    settings = settings_of(equal, target=UNIFORM, seed=7, **parts)
    spent = [report.epsilon or 0.0 for report in federate(settings, counts=CROWD)[1]]
    assert len(drawn) == 12, "six for the budget before the first round, and one per round"
    assert 0 < spent[0] < spent[-1] and spent == sorted(spent)


def test_what_many_clients_remember_is_a_few_tensors(tmp_path: Path) -> None:
    """A file of safetensors names its tensors in a header of limited length."""
    (tmp_path / layout.CLIENTS).mkdir(parents=True)
    settings = settings_of("isfedavg", target=UNIFORM)
    engine = engine_of(settings, CROWD)
    state, _ = federate(settings, engine)
    save_checkpoint(tmp_path, Checkpoint(state, dict(engine.client_states), {}, "config"))
    read = latest_checkpoint(tmp_path)
    assert (
        read is not None and read.client_states.keys() == engine.client_states.keys() and len(read.client_states) == 12
    )
    for client, stored in engine.client_states.items():
        assert stored.small.probabilities is not None
        np.testing.assert_array_equal(read.client_states[client].small.probabilities, stored.small.probabilities)
    (file,) = (tmp_path / layout.CHECKPOINTS).glob("*.safetensors")
    with safe_open(file, "pt") as content:
        names = list(content.keys())
    assert sum(name.startswith("clients") for name in names) == 2


def test_clients_that_find_their_probabilities_anew_remember_nothing() -> None:
    settings = settings_of(AT_CLIENT, target=UNIFORM)
    engine = engine_of(settings)
    federate(settings, engine)
    assert engine.client_states == {}


def test_clients_of_secure_aggregation_remember_nothing_after_the_last_phase() -> None:
    settings = settings_of("fedavg", target=UNIFORM, secure={})
    engine = engine_of(settings)
    federate(settings, engine)
    assert engine.client_states == {}
