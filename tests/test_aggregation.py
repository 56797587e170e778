"""Aggregation rules against their formulas, written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from isfl.federation.aggregations import Aggregation, AnyAggregation, aggregate
from isfl.federation.values import ClientUpdate, ServerMemory, Weights


def rule_of(**settings: object) -> Aggregation:
    return TypeAdapter[Aggregation](AnyAggregation).validate_python(settings)


def update(client: int, value: float, samples: int = 1, steps: int = 0) -> ClientUpdate:
    model = {"w": torch.tensor([value]), "running_var": torch.tensor([value + 1]), "steps": torch.tensor(steps)}
    return ClientUpdate(client, samples, model, 0.0, 0, 0, 0.0, 0.0)


START: Weights = {"w": torch.tensor([1.0]), "running_var": torch.tensor([1.0]), "steps": torch.tensor(0)}
PARAMETERS = frozenset({"w"})


def test_mean_by_size_and_by_client() -> None:
    updates = [update(0, 2.0, samples=1), update(1, 6.0, samples=3)]
    by_size, _ = aggregate(rule_of(rule="mean"), START, updates, ServerMemory(), PARAMETERS)
    by_client, _ = aggregate(rule_of(rule="mean", weights="client"), START, updates, ServerMemory(), PARAMETERS)
    assert by_size["w"].item() == pytest.approx(5.0)
    assert by_client["w"].item() == pytest.approx(4.0)


def test_server_momentum_adds_up_updates() -> None:
    rule = rule_of(rule="momentum", lr=0.5, momentum=0.9)
    model, memory = aggregate(rule, START, [update(0, 3.0)], ServerMemory(), PARAMETERS)
    assert model["w"].item() == pytest.approx(1 + 0.5 * 2)
    model, _ = aggregate(rule, model, [update(0, 3.0)], memory, PARAMETERS)
    assert model["w"].item() == pytest.approx(2 + 0.5 * (0.9 * 2 + 1))
    assert model["running_var"].item() == pytest.approx(4.0)  # statistics are averaged, not accelerated


def test_server_momentum_without_momentum_is_the_mean() -> None:
    updates = [update(0, 2.0), update(1, 5.0)]
    plain, _ = aggregate(rule_of(rule="mean"), START, updates, ServerMemory(), PARAMETERS)
    zero, _ = aggregate(rule_of(rule="momentum", momentum=0.0), START, updates, ServerMemory(), PARAMETERS)
    assert zero["w"].item() == pytest.approx(plain["w"].item())


def test_fedadam_by_hand() -> None:
    rule = rule_of(rule="adam", lr=0.1, beta1=0.9, beta2=0.99, tau=0.01)
    model, memory = aggregate(rule, START, [update(0, 3.0)], ServerMemory(), PARAMETERS)
    first, second = 0.1 * 2.0, 0.99 * 0.01**2 + 0.01 * 4.0
    assert model["w"].item() == pytest.approx(1 + 0.1 * first / (second**0.5 + 0.01), rel=1e-5)
    delta = 3.0 - model["w"].item()
    first, second = 0.9 * first + 0.1 * delta, 0.99 * second + 0.01 * delta**2
    expected = model["w"].item() + 0.1 * first / (second**0.5 + 0.01)
    model, _ = aggregate(rule, model, [update(0, 3.0)], memory, PARAMETERS)
    assert model["w"].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("settings", [{"rule": "median"}, {"rule": "trimmed-mean", "trim": 0.2}])
def test_robust_rules_ignore_one_outlier(settings: dict[str, object]) -> None:
    updates = [update(k, float(v), samples=s) for k, (v, s) in enumerate([(1, 1), (2, 1), (3, 1), (4, 1), (1e9, 1000)])]
    model, _ = aggregate(rule_of(**settings), START, updates, ServerMemory(), PARAMETERS)
    assert model["w"].item() == pytest.approx(3.0)


def test_the_median_of_an_even_number_lies_in_the_middle() -> None:
    model, _ = aggregate(rule_of(rule="median"), START, [update(0, 1.0), update(1, 2.0)], ServerMemory(), PARAMETERS)
    assert model["w"].item() == pytest.approx(1.5)


def test_counters_are_not_averaged() -> None:
    updates = [update(0, 1.0, steps=3), update(1, 1.0, steps=8)]
    model, _ = aggregate(rule_of(rule="mean"), START, updates, ServerMemory(), PARAMETERS)
    assert model["steps"].item() == 8 and model["steps"].dtype == torch.int64


def test_client_weights_sum_to_one() -> None:
    np.testing.assert_allclose(rule_of(rule="mean").client_weights([1, 3]), [0.25, 0.75])
    np.testing.assert_allclose(rule_of(rule="median").client_weights([1, 3]), [0.5, 0.5])
