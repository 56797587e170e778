"""Plans give the same values in any process and order; the cheaper methods equal their definitions."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import overload

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl import lipschitz
from isfl.smoothness import ESTIMATORS, conclude, distance, estimate_lipschitz, measure_part, plan_estimate
from isfl.theory.arrays import Array
from tests.zoo import FAST, MixesBatch, Text, by_definition, mlp, problem, resnet_like

every_method = pytest.mark.parametrize("method", list(ESTIMATORS))


class Loaded(Sequence[nn.Module]):
    """Models in a worker: one module, loaded with the requested weights."""

    def __init__(self, models: list[nn.Module]) -> None:
        self.states = [copy.deepcopy(model.state_dict()) for model in models]
        self.module = copy.deepcopy(models[0])

    def __len__(self) -> int:
        return len(self.states)

    @overload
    def __getitem__(self, k: int) -> nn.Module: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[nn.Module]: ...
    def __getitem__(self, k: int | slice) -> nn.Module | Sequence[nn.Module]:
        assert isinstance(k, int)
        self.module.load_state_dict(self.states[k])
        return self.module


def data(samples: int = 75) -> tuple[list[nn.Module], nn.Module, Tensor, Tensor]:
    return problem(resnet_like, clients=3, samples=samples)


@every_method
def test_workers_that_load_models_as_they_go_give_the_same_bits(method: str) -> None:
    local, center, inputs, labels = data()
    together = estimate_lipschitz(local, center, inputs, labels, 4, method=method)
    plan = pickle.loads(pickle.dumps(plan_estimate(center, inputs, labels, 4, method=method)))
    lazy = Loaded(local)
    measured = [measure_part(plan, i, lazy, copy.deepcopy(center), inputs, labels) for i in reversed(range(len(plan)))]
    apart = conclude(plan, measured, [distance(model, center) for model in local])
    assert len(plan) > 1
    assert lazy.module.training
    np.testing.assert_array_equal(apart.values, together.values)
    assert apart.gradient_evaluations == together.gradient_evaluations


@every_method
def test_a_client_has_the_same_value_with_others_and_alone(method: str) -> None:
    local, center, inputs, labels = data()
    together = lipschitz(local, center, inputs, labels, 4, method=method)
    for k, model in enumerate(local):
        np.testing.assert_array_equal(lipschitz([model], center, inputs, labels, 4, method=method)[0], together[k])


@every_method
def test_a_plan_is_small_and_covers_every_sample_once(method: str) -> None:
    _, center, inputs, labels = data(samples=150)
    plan = plan_estimate(center, inputs, labels, 4, method=method)
    assert sorted(i for part in plan.division.parts for i in part) == list(range(150))
    assert plan == plan_estimate(center, inputs, labels, 4, method=method)
    assert len(pickle.dumps(plan)) < 4000
    if method != "class-mean":
        assert max(len(part) for part in plan.division.parts) <= 64


class MixesNothing(MixesBatch):
    """The same values for one sample, different values for a batch."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.flatten(1))
        return out


def test_a_local_model_with_other_layers_is_measured_on_the_slow_path() -> None:
    """The check of batched rules on the global model does not cover a local model with other layers."""
    local, _, inputs, labels = problem(MixesBatch)
    center = problem(MixesNothing)[1]
    assert plan_estimate(center, inputs, labels, 4).division.batched
    expected = by_definition(local, center, inputs, labels, 4)
    with pytest.warns(UserWarning, match="made of other layers"):
        values = lipschitz(local, center, inputs, labels, 4)
    np.testing.assert_allclose(values, expected, rtol=1e-4)


def class_mean_by_definition(local: list[nn.Module], center: nn.Module, inputs: Tensor, labels: Tensor) -> Array:
    values = np.full((len(local), 4), np.nan)
    models = [copy.deepcopy(m).double().eval() for m in (center, *local)]
    data = inputs.double() if inputs.is_floating_point() else inputs
    for i in range(4):
        if not bool((labels == i).any()):
            continue
        grads = []
        for model in models:
            loss = F.cross_entropy(model(data[labels == i]), labels[labels == i])
            found = torch.autograd.grad(loss, list(model.parameters()))
            grads.append(torch.cat([g.flatten() for g in found]))
        for k, model in enumerate(models[1:]):
            values[k, i] = float((grads[k + 1] - grads[0]).norm()) / distance(model, models[0])
    return values


@pytest.mark.parametrize("make", FAST)
def test_class_mean_is_the_gradient_of_the_mean_loss(make: type[nn.Module]) -> None:
    local, center, inputs, labels = problem(make, samples=90)
    labels = labels.clamp(max=2)  # a class without samples
    expected = class_mean_by_definition(local, center, inputs, labels)
    values = lipschitz(local, center, inputs, labels, 4, method="class-mean")
    np.testing.assert_allclose(values, expected, rtol=1e-4)
    small = lipschitz(local, center, inputs, labels, 4, method="class-mean", memory=1)
    np.testing.assert_allclose(small, expected, rtol=1e-4)


@pytest.mark.parametrize("make", [resnet_like, mlp, Text])
@pytest.mark.parametrize("bias", [True, False])
def test_last_layer_is_the_exact_value_with_everything_else_frozen(make: type[nn.Module], bias: bool) -> None:
    """Divided by the distance of the whole models."""
    local, center, inputs, labels = problem(make)
    if not bias:
        for model in (center, *local):
            next(m for m in reversed(list(model.modules())) if isinstance(m, nn.Linear)).bias.requires_grad_(False)
    estimate = estimate_lipschitz(local, center, inputs, labels, 4, method="last-layer")
    frozen = copy.deepcopy([center, *local])
    for model in frozen:
        head = next(m for m in reversed(list(model.modules())) if isinstance(m, nn.Linear))
        for parameter in set(model.parameters()) - set(head.parameters()):
            parameter.requires_grad_(False)
    exact = estimate_lipschitz(frozen[1:], frozen[0], inputs, labels, 4)
    expected = exact.values * (exact.distances / estimate.distances)[:, None]
    np.testing.assert_allclose(estimate.values, expected, rtol=1e-4)


def test_cheaper_methods_never_exceed_the_definition() -> None:
    """A mean is at most as long as the longest vector, a part at most as long as the whole."""
    local, center, inputs, labels = data()
    exact = lipschitz(local, center, inputs, labels, 4)
    for method in ("class-mean", "last-layer"):
        assert (lipschitz(local, center, inputs, labels, 4, method=method) <= exact * (1 + 1e-5)).all()


class Scaled(nn.Module):
    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.head, self.in_place = nn.Linear(192, 4), in_place

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits.mul_(2) if self.in_place else 2 * logits


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()),
        Scaled(in_place=False),
        Scaled(in_place=True),
        nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Linear(8, 4).requires_grad_(False)),
    ],
)
def test_last_layer_needs_a_last_layer(model: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"'last-layer'.*use method 'class-mean' or 'exact'"):
        lipschitz([], model, torch.randn(4, 3, 8, 8), torch.arange(4), 4, method="last-layer")


def test_work_is_counted() -> None:
    local, center, inputs, labels = problem(mlp, clients=4, samples=20)
    counted = {
        m: estimate_lipschitz(local, center, inputs, labels, 4, method=m).gradient_evaluations for m in ESTIMATORS
    }
    assert counted == {"exact": 100, "class-mean": 100, "last-layer": 34}


@every_method
def test_measurements_that_are_not_finite_are_dropped_and_counted(method: str) -> None:
    local, center, inputs, labels = problem(mlp)
    inputs[0] = float("nan")
    estimate = estimate_lipschitz(local, center, inputs, labels, 4, method=method)
    np.testing.assert_array_equal(estimate.dropped, [1, 1])
    assert np.isfinite(np.delete(estimate.values, int(labels[0]), axis=1)).all()


def test_an_unknown_method_is_named() -> None:
    _, center, inputs, labels = problem(MixesBatch)
    with pytest.raises(ValueError, match=r"method is 'fast'.*exact, class-mean, last-layer"):
        plan_estimate(center, inputs, labels, 4, method="fast")
