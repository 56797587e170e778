"""Simulated attacks: which clients are hostile, what they do, and where an attack is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from isfl.engines import LocalEngine
from isfl.errors import UserError
from isfl.federation import start
from isfl.federation.attacks import ATTACKS, AnyAttack, Attack, attacked
from isfl.federation.values import ClientUpdate, TrainTask, Weights
from isfl.problem.config import config_from
from tests.worlds import Meddling, blobs, engine_of, federate, network, same_bits, settings_of

KINDS = [str(kind.model_fields["kind"].default) for kind in ATTACKS]
START: Weights = {"w": torch.tensor([1.0, -1.0]), "running_mean": torch.tensor([5.0])}
PARAMETERS = frozenset({"w"})
FIVE = ((30, 6, 2, 2), (2, 2, 30, 6), (10, 10, 10, 10), (6, 30, 2, 2), (2, 2, 6, 30))


def attack_of(kind: str, **settings: Any) -> Attack:
    return TypeAdapter[Attack](AnyAttack).validate_python({"kind": kind, **settings})


def update(client: int, *values: float) -> ClientUpdate:
    model = {"w": torch.tensor(values), "running_mean": torch.tensor([float(client)])}
    return ClientUpdate(client, 10, model, 0.5, 1, 0, 0.0, 0.0)


def sent(attack: Attack, updates: list[ClientUpdate], seed: int = 0) -> dict[int, list[float]]:
    """What hostile clients send for `w`; everything else must be what they had."""
    changed = attacked(attack, seed, updates, START, PARAMETERS)
    for client, crafted in changed.items():
        before = next(u for u in updates if u.client == client)
        assert replace(crafted, model={}) == replace(before, model={})
        assert torch.equal(crafted.model["running_mean"], before.model["running_mean"])
    return {client: crafted.model["w"].tolist() for client, crafted in changed.items()}


def test_the_share_of_hostile_clients_is_exact_and_the_seed_decides_who() -> None:
    chosen = set()
    for share, clients in ((0.2, 10), (0.2, 100), (0.3, 10), (0.45, 7), (0.9, 30)):
        for seed in range(12):
            attack = attack_of("scale", share=share)
            hostile = [k for k in range(clients) if attack.is_hostile(seed, k)]
            assert len(hostile) in {int(np.floor(share * clients + 1e-9)), int(np.ceil(share * clients - 1e-9))}
            chosen |= {tuple(hostile)} if (share, clients) == (0.2, 10) else set()
    assert len(chosen) == 5, "every fifth client, from each of the five starts"
    assert not any(attack_of("none").is_hostile(0, k) for k in range(100))


def hostile_in(attack: Attack, clients: int, seed: int = 0) -> list[int]:
    return [k for k in range(clients) if attack.is_hostile(seed, k)]


@pytest.mark.parametrize(
    ("kind", "settings", "factor"),
    [("sign-flip", {"strength": 3.0}, -3.0), ("scale", {"factor": 10.0}, 10.0), ("replace", {}, 5.0)],
)
def test_a_hostile_update_is_a_multiple_of_the_own_one(kind: str, settings: dict[str, float], factor: float) -> None:
    attack = attack_of(kind, share=0.2, **settings)
    updates = [update(k, 1.0 + k, -1.0 - 2 * k) for k in range(5)]
    (client,) = hostile_in(attack, 5)
    assert sent(attack, updates) == {client: pytest.approx([1 + factor * client, -1 - factor * 2 * client])}


def test_replacement_makes_the_mean_the_hostile_model_where_honest_updates_cancel() -> None:
    attack = attack_of("replace", share=0.5)
    hostile = hostile_in(attack, 4)
    honest = iter(([3.0, 0.0], [-1.0, -2.0]))  # they cancel around the start (1, -1)
    updates = [update(k, *([7.0, 9.0] if k in hostile else next(honest))) for k in range(4)]
    models = {u.client: u.model["w"].tolist() for u in updates} | sent(attack, updates)
    np.testing.assert_allclose(np.mean(list(models.values()), axis=0), [7.0, 9.0])


def test_colluding_clients_send_one_model_within_the_honest_spread() -> None:
    attack = attack_of("collude", share=0.4, deviations=0.5)
    rng = np.random.default_rng(0)
    updates = [update(k, *rng.normal(size=2)) for k in range(5)]
    hostile = hostile_in(attack, 5)
    honest = np.array([u.model["w"].tolist() for u in updates if u.client not in hostile])
    expected = honest.mean(axis=0) - 0.5 * honest.std(axis=0)
    assert sent(attack, updates) == {k: pytest.approx(expected) for k in hostile} and len(hostile) == 2
    assert (expected > honest.min(axis=0)).all() and (expected < honest.max(axis=0)).all()


class Watched(Meddling):
    """Keeps what clients trained."""

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate]:
        self.trained = {update.client: update for update in super().train(tasks)}
        return list(self.trained.values())


def test_flipped_labels_change_the_training_of_hostile_clients_alone() -> None:
    """A hostile client announces and draws by its true labels, and learns others: the same as data with those."""
    flip, none = (
        settings_of("uniform-is", training={"rounds": 1}, attack=attack)
        for attack in ({"kind": "label-flip", "share": 0.2}, {"kind": "none"})
    )
    engines = [engine_of(settings, counts=FIVE, kind=Watched) for settings in (flip, none)]
    states = [start(settings, engine) for settings, engine in zip((flip, none), engines, strict=True)]
    np.testing.assert_array_equal(states[0].counts, states[1].counts)
    for settings, engine in zip((flip, none), engines, strict=True):
        federate(settings, engine)
    (client,) = hostile_in(flip.attack, 5)
    one, other = (engine.trained for engine in engines if isinstance(engine, Watched))
    same = {k for k in range(5) if all(torch.equal(one[k].model[n], other[k].model[n]) for n in one[k].model)}
    assert same == set(range(5)) - {client}
    data = blobs(FIVE[client], seed=1)
    assert torch.equal(flip.attack.poisoned(data).labels, 3 - data.labels)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
def test_an_attack_runs_unseen_by_admission_and_changes_the_model(kind: str) -> None:
    settings = settings_of("fedavg", training={"rounds": 2}, attack={"kind": kind})
    state, reports = federate(settings, counts=FIVE)
    plain, _ = federate(settings_of("fedavg", training={"rounds": 2}), counts=FIVE)
    assert not any(report.refused for report in reports)
    assert not same_bits(state, plain)


def test_a_malformed_answer_is_refused_before_hostile_clients_see_it() -> None:
    class Broken(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            return [replace(u, model={}) if u.client == 1 else u for u in updates]

    settings = settings_of("fedavg", training={"rounds": 1}, attack={"kind": "collude", "share": 0.4})
    _, (report,) = federate(settings, engine_of(settings, counts=FIVE, kind=Broken))
    assert report.refused.keys() == {1}


def test_an_attack_that_overflows_is_refused_like_any_update() -> None:
    settings = settings_of("fedavg", training={"rounds": 1}, attack={"kind": "scale", "share": 0.2, "factor": 1e45})
    _, (report,) = federate(settings, counts=FIVE)
    (client,) = hostile_in(settings.attack, 5)
    assert report.refused.keys() == {client} and "not finite" in report.refused[client]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"attack": {"kind": "sign-flop"}}, "attack.kind: found 'sign-flop'; choose one of 'none', 'sign-flip'"),
        ({"attack": {"kind": "scale", "share": 0.0}}, "attack.share: found 0.0; input should be greater than 0"),
        ({"attack": {"kind": "scale", "share": 1.0}}, "attack.share: found 1.0; input should be less than 1"),
        ({"attack": {"kind": "none", "share": 0.2}}, "attack.share: unknown key"),
        (
            {"attack": {"kind": "collude"}, "flower": {"own_data": True, "clients": 5}},
            "attack.kind = 'collude' is a simulation, and flower.own_data = true has real clients",
        ),
        ({"attack": {"kind": "collude"}, "scheme": "centralized"}, "attack.kind = 'collude' needs clients"),
    ],
)
def test_an_impossible_attack_is_refused_in_one_line(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        config_from(raw, "own.toml")
    assert str(error.value).startswith(f"own.toml: {words}") and "\n" not in str(error.value)


def test_an_attack_that_would_make_nobody_hostile_is_refused() -> None:
    settings = settings_of("fedavg", attack={"kind": "scale", "share": 0.001})
    with pytest.raises(UserError, match=r"attack.kind = 'scale': 0 of 5 clients are hostile with seed 0; choose"):
        start(
            settings,
            LocalEngine(network(), [blobs(c, 1) for c in FIVE], blobs((8,) * 4, 7), blobs((8,) * 4, 8), settings),
        )
