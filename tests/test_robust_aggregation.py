"""Aggregations that look at whole updates, against their definitions written out."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isfl.experiment.run import resume, run
from isfl.federation import FederationState, RoundReport
from isfl.federation.aggregations import Aggregation
from isfl.federation.interface import ModelFacts
from isfl.federation.values import ClientUpdate, Weights
from isfl.theory.arrays import Array
from tests.resumable import config, outcome, stop_after
from tests.test_aggregation import rule_of
from tests.worlds import COUNTS, engine_of, federate, network, same_bits, settings_of

PARAMETERS = frozenset({"a", "b"})


class Scales:
    """A server whose loss is the squared distance from a model that it likes, `(0, ..., 0)`; it counts evaluations."""

    num_public = 7

    def __init__(self) -> None:
        self.facts, self.evaluated = ModelFacts(PARAMETERS, frozenset()), 0

    def public_loss(self, model: Weights) -> Array:
        self.evaluated += 1
        return np.array([sum(float(model[name].square().sum()) for name in PARAMETERS), np.nan])


def random_updates(rng: np.random.Generator, clients: int) -> tuple[Weights, list[ClientUpdate]]:
    """A global model and updates with two parameters, a statistic and a counter."""

    def model(spread: float) -> Weights:
        shapes = {"a": (3, 2), "b": (4,), "statistic": (2,)}
        values = {name: torch.from_numpy(rng.normal(size=shape) * spread).float() for name, shape in shapes.items()}
        return {**values, "steps": torch.tensor(int(rng.integers(9)))}

    sizes = rng.integers(1, 50, size=clients)
    updates = [
        ClientUpdate(k, int(sizes[k]), model(rng.choice([0.1, 1.0, 30.0])), 0.0, 0, 0, 0.0, 0.0) for k in range(clients)
    ]
    return model(0.1), updates


def flat(model: Weights, names: frozenset[str] = PARAMETERS) -> Array:
    return np.concatenate([model[name].double().numpy().ravel() for name in sorted(names)])


def distance(one: Weights, other: Weights, names: frozenset[str]) -> float:
    return float(np.linalg.norm(flat(one, names) - flat(other, names)))


def screened(rule: Aggregation, start: Weights, updates: list[ClientUpdate], server: Any = None) -> Any:
    judge: Any = server or Scales()
    return rule.screen(start, updates, judge)


@pytest.mark.parametrize("norm", [None, 0.7])
def test_clipped_updates_are_shortened_to_the_norm_and_shorter_ones_are_untouched(norm: float | None) -> None:
    rng = np.random.default_rng(0)
    for clients in (1, 4, 7):
        start, updates = random_updates(rng, clients)
        lengths = [distance(u.model, start, PARAMETERS) for u in updates]
        statistics = [distance(u.model, start, frozenset({"statistic"})) for u in updates]
        limit = float(np.median(lengths)) if norm is None else norm
        kept = screened(rule_of(rule="clipped", norm=norm), start, updates).updates
        for before, after, length, other in zip(updates, kept, lengths, statistics, strict=True):
            expected = flat(start) + min(1.0, limit / length) * (flat(before.model) - flat(start))
            np.testing.assert_allclose(flat(after.model), expected, rtol=1e-5, atol=1e-6)
            share = min(1.0, float(np.median(statistics)) / other)
            moved = start["statistic"] + share * (before.model["statistic"] - start["statistic"])
            np.testing.assert_allclose(after.model["statistic"], moved, rtol=1e-5, atol=1e-6)
            assert torch.equal(after.model["steps"], before.model["steps"])
            if length <= limit:
                assert all(torch.equal(after.model[name], before.model[name]) for name in PARAMETERS)


def krum_oracle(start: Weights, updates: list[ClientUpdate], left: int) -> set[int]:
    """The clients that Multi-Krum keeps, from its definition: loops over all pairs, distances of the models."""
    points = {u.client: flat(u.model) for u in updates}
    scores = {}
    for k, own in points.items():
        distances = sorted(float(((own - other) ** 2).sum()) for client, other in points.items() if client != k)
        scores[k] = sum(distances[: len(points) - left - 2])
    return set(sorted(scores, key=scores.__getitem__)[: len(points) - left])


def test_multi_krum_keeps_the_updates_with_the_closest_neighbours() -> None:
    rng = np.random.default_rng(1)
    for clients, hostile, left in ((10, 0.2, 2), (11, 0.2, 3), (9, 0.45, 3), (5, 0.4, 1)) * 15:
        start, updates = random_updates(rng, clients)
        found = screened(rule_of(rule="multi-krum", hostile=hostile), start, updates)
        assert {u.client for u in found.updates} == krum_oracle(start, updates, left)
        assert found.left_out.keys() == {u.client for u in updates} - {u.client for u in found.updates}
        assert all(kept is updates[kept.client] for kept in found.updates)


@pytest.mark.parametrize("clients", [1, 2, 3, 4])
def test_multi_krum_with_too_few_clients_leaves_nobody_out(clients: int) -> None:
    start, updates = random_updates(np.random.default_rng(2), clients)
    found = screened(rule_of(rule="multi-krum", hostile=0.4), start, updates)
    assert list(found.updates) == updates and not found.left_out


def mean_loss(rule: Aggregation, updates: list[ClientUpdate]) -> float:
    weights = rule.client_weights([u.num_samples for u in updates])
    return float((sum(w * flat(u.model) for w, u in zip(weights, updates, strict=True)) ** 2).sum())


def test_the_public_check_leaves_out_what_makes_the_mean_worse_one_after_the_other() -> None:
    """By brute force: of all sets with one client less, the best one is taken while it is better than before."""
    rng, rule = np.random.default_rng(3), rule_of(rule="public-loss", hostile=0.3)
    numbers = []
    for _ in range(12):
        start, updates = random_updates(rng, 7)
        server, kept = Scales(), list(updates)
        found = screened(rule, start, updates, server)
        for _ in range(3):
            best = min(itertools.combinations(kept, len(kept) - 1), key=lambda some: mean_loss(rule, list(some)))
            if mean_loss(rule, list(best)) >= mean_loss(rule, kept):
                break
            kept = list(best)
        assert [u.client for u in found.updates] == [u.client for u in kept]
        assert found.forward_passes == server.evaluated * server.num_public <= (1 + 7 + 6 + 5) * 7
        numbers.append(len(found.left_out))
    assert len(set(numbers)) > 1, "some rounds have fewer bad updates than others"


def test_the_public_check_leaves_everybody_in_if_nobody_does_harm() -> None:
    start, updates = random_updates(np.random.default_rng(4), 5)
    same = [replace(u, model=updates[0].model) for u in updates]
    found = screened(rule_of(rule="public-loss"), start, same)
    assert list(found.updates) == same and not found.left_out


def test_updates_that_overflow_are_left_out_the_longest_first() -> None:
    """With two of them the loss is infinite with and without either, so losses cannot tell which to leave out."""
    start, updates = random_updates(np.random.default_rng(5), 5)
    for client, size in ((1, 2e38), (3, 3e38)):
        huge = {name: torch.full_like(value, size) for name, value in updates[client].model.items() if name != "steps"}
        updates[client] = replace(updates[client], model=updates[client].model | huge)
    found = screened(rule_of(rule="public-loss", hostile=0.4), start, updates)
    assert list(found.left_out) == [3, 1]


# ---------------------------------------------------------------- in a round


@functools.cache
def hostile_run(rule: str, workers: int = 1) -> tuple[FederationState, list[RoundReport]]:
    """Six clients, one of them hostile."""
    settings = settings_of(
        {"name": "isfl", "aggregation": {"rule": rule}}, attack={"kind": "sign-flip", "share": 1 / 6}
    )
    engine = engine_of(settings, counts=COUNTS * 2, model=network(batchnorm=True), workers=workers)
    with engine:
        return federate(settings, engine)


@pytest.mark.parametrize("rule", ["clipped", "multi-krum", "public-loss"])
def test_worker_processes_give_the_same_bits(rule: str) -> None:
    (alone, reports), (together, _) = hostile_run(rule), hostile_run(rule, 2)
    assert same_bits(alone, together)
    left = {client: reason for report in reports for client, reason in report.refused.items()}
    if rule == "clipped":
        assert not left
    else:
        assert left and all(reason.startswith(f"left out by {rule}: ") for reason in left.values())


def test_an_update_that_is_left_out_changes_nothing_and_is_paid_for() -> None:
    """Its client keeps the probabilities it had, and the round reports what looking at updates cost."""
    state, reports = hostile_run("multi-krum")
    for before, report in itertools.pairwise(reports):
        assert report.participants == tuple(range(6)) and report.update_norm.keys() | report.refused.keys() == set(
            range(6)
        )
        for client in before.refused:
            np.testing.assert_array_equal(report.probabilities[client], before.probabilities[client])
    _, checked = hostile_run("public-loss")
    for report in checked:
        left = len(report.refused)
        evaluations = 1 + 6 + (5 if left else 0)  # ceil(0.2 * 6) = 2 may be left out
        assert report.gradient_evaluations.aggregation == -(-evaluations * 32 // 3)
        assert report.seconds.aggregation > 0
    assert reports[0].gradient_evaluations.aggregation == 0 and state.round == 3


def test_an_attacked_run_resumes_with_the_same_bits(tmp_path: Path) -> None:
    changes = {"model": {"name": "mlp", "width": 0.25}, "training": {"rounds": 3, "local_epochs": 1, "batch_size": 16}}
    for rule in ("multi-krum", "public-loss"):
        scheme = {"name": "isfl", "aggregation": {"rule": rule, "hostile": 0.25}}
        settings = config(
            scheme=scheme, target={"kind": "global"}, attack={"kind": "collude", "share": 0.25}, **changes
        )
        run(settings, tmp_path / f"{rule}-whole")
        stop_after(tmp_path / rule, 1, settings=settings)
        resume(tmp_path / rule)
        assert outcome(tmp_path / rule) == outcome(tmp_path / f"{rule}-whole")
