"""The estimator equals the paper's definition for every kind of model, within a memory budget."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from isfl import lipschitz
from isfl.kernels import with_fast_convolutions
from isfl.smoothness import estimate_lipschitz, plan_estimate, sample_gradient_norms
from isfl.smoothness.models import evaluation_mode, trainable
from isfl.smoothness.per_sample import _dense, one_by_one
from isfl.smoothness.plan import LARGEST
from isfl.smoothness.samples import Samples
from tests.zoo import FAST, SLOW, BehindTheBack, OddConvolution, by_definition, groupnorm, mlp, problem, resnet_like


@pytest.mark.parametrize("make", FAST)
def test_batched_rules_are_used_and_equal_the_definition(make: Callable[[], nn.Module]) -> None:
    local, center, inputs, labels = problem(make)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plan_estimate(center, inputs, labels, 4).division.batched
    expected = by_definition(local, center, inputs, labels, 4)
    np.testing.assert_allclose(lipschitz(local, center, inputs, labels, 4), expected, rtol=1e-4)


@pytest.mark.parametrize("make", SLOW)
def test_models_without_batched_rules_are_computed_one_sample_at_a_time(make: Callable[[], nn.Module]) -> None:
    local, center, inputs, labels = problem(make)
    expected = by_definition(local, center, inputs, labels, 4)
    with pytest.warns(UserWarning, match="one at a time"):
        values = lipschitz(local, center, inputs, labels, 4)
    np.testing.assert_allclose(values, expected, rtol=1e-4)


@pytest.mark.parametrize("make", [*FAST, OddConvolution])
def test_per_sample_gradients_agree_parameter_by_parameter(make: Callable[[], nn.Module]) -> None:
    _, center, inputs, labels = problem(make)
    with evaluation_mode(center):
        slow = dict(one_by_one(center, Samples(inputs, labels)))
        assert set(slow) == set(trainable(center))
        if make is not OddConvolution:
            fast = _dense(center, Samples(inputs, labels))
            for name in slow:
                torch.testing.assert_close(fast[name], slow[name], rtol=1e-4, atol=1e-5)


def test_the_result_does_not_depend_on_the_chunk_size() -> None:
    local, center, inputs, labels = problem(resnet_like)
    whole = lipschitz(local, center, inputs, labels, 4)
    np.testing.assert_allclose(lipschitz(local, center, inputs, labels, 4, memory=1), whole, rtol=1e-5)


def peak_memory(work: Callable[[], object]) -> int:
    """Return the peak bytes of tensors allocated during the work, by torch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    held = peak = 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def largest_part(model: nn.Module, inputs: Tensor, labels: Tensor, memory: int) -> int:
    plan = plan_estimate(model, inputs, labels, 10, memory=memory)
    return max(len(part) for part in plan.division.parts)


def test_memory_stays_within_the_budget() -> None:
    """What autograd and the rules allocate at a time, seen by torch's own allocator hooks. The sequence is long enough
    that weight gradients are multiplied out."""
    model = nn.Sequential(
        nn.Flatten(), nn.Unflatten(1, (48, 64)), nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64), nn.Flatten()
    )
    inputs, labels = torch.randn(64, 3, 32, 32), torch.arange(64) % 10
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_parameter("2.weight").add_(0.1)
    budget = 40 << 20
    assert 1 < largest_part(model, inputs, labels, budget) < largest_part(model, inputs, labels, 10 * budget)
    assert 0.2 * budget < peak_memory(lambda: lipschitz([other], model, inputs, labels, 10, memory=budget)) < budget


def test_gradients_of_a_wide_layer_are_never_multiplied_out() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 2048), nn.ReLU(), nn.Linear(2048, 10))
    inputs, labels = torch.randn(LARGEST, 3, 32, 32), torch.arange(LARGEST) % 10
    weights = 4 * sum(p.numel() for p in model.parameters())
    plan_estimate(model, inputs, labels, 10)  # the spot check does multiply them out, for four samples
    part = peak_memory(lambda: sample_gradient_norms(model, inputs, labels))
    assert part < LARGEST * weights / 2
    assert largest_part(model, inputs, labels, 4 * weights) == LARGEST


@pytest.mark.filterwarnings("ignore:per-sample gradients one at a time")
def test_memory_of_the_slow_path_stays_within_the_budget() -> None:
    model = nn.Sequential(nn.Flatten(), nn.utils.spectral_norm(nn.Linear(3072, 512)), nn.ReLU(), nn.Linear(512, 10))
    inputs, labels = torch.randn(24, 3, 32, 32), torch.arange(24) % 10
    budget = 100 << 20
    assert 1 < largest_part(model, inputs, labels, budget) < 24
    assert 0.2 * budget < peak_memory(lambda: lipschitz([model], model, inputs, labels, 10, memory=budget)) < budget


def test_frozen_parameters_do_not_count() -> None:
    local, center, inputs, labels = problem(mlp)
    for model in (center, *local):
        layer = model.get_submodule("1")
        for parameter in layer.parameters():
            parameter.requires_grad_(False)
    fast = lipschitz(local, center, inputs, labels, 4)
    with evaluation_mode(center):
        assert "1.weight" not in _dense(center, Samples(inputs, labels))
    # The distance of the models counts trainable parameters alone.
    free = [(local[0].get_submodule(n), center.get_submodule(n)) for n in ("2", "4", "5")]
    gap = (
        sum(
            float(((a - b) ** 2).sum().detach())
            for x, y in free
            for a, b in zip(x.parameters(), y.parameters(), strict=True)
        )
        ** 0.5
    )
    assert estimate_lipschitz(local, center, inputs, labels, 4).distances[0] == pytest.approx(gap, rel=1e-5)
    assert np.isfinite(fast).all()


def test_a_checked_sample_that_is_not_finite_does_not_disable_the_check() -> None:
    local, center, inputs, labels = problem(BehindTheBack)
    expected = by_definition(local, center, inputs[1:], labels[1:], 4)
    inputs[0] = float("nan")
    with pytest.warns(UserWarning, match="one at a time"):
        np.testing.assert_allclose(lipschitz(local, center, inputs, labels, 4), expected, rtol=1e-4)


def test_a_model_that_works_in_place_does_not_change_the_data() -> None:
    class Halving(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.div_(2)

    def make() -> nn.Module:
        return nn.Sequential(Halving(), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(192, 4))

    local, center, inputs, labels = problem(make)
    before = inputs.clone()
    values = lipschitz(local, center, inputs, labels, 4)
    assert torch.equal(inputs, before)

    def plain() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))

    same = [plain() for _ in range(3)]
    for ours, theirs in zip(same, [center, *local], strict=True):
        ours[1].load_state_dict(theirs[3].state_dict())  # type: ignore[index]
    expected = lipschitz(same[1:], same[0], (before / 2).relu(), labels, 4)
    np.testing.assert_allclose(values, expected, rtol=1e-4)


def test_works_under_no_grad_and_with_labels_of_any_whole_type() -> None:
    local, center, inputs, labels = problem(mlp)
    expected = lipschitz(local, center, inputs, labels, 4)
    with torch.no_grad():
        np.testing.assert_array_equal(lipschitz(local, center, inputs, labels.to(torch.int32), 4), expected)


@pytest.mark.parametrize("fast", [False, True])
def test_memory_of_a_convolutional_model_stays_within_the_budget(fast: bool) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32768, 10),
    )
    if fast:
        with_fast_convolutions(model)
    inputs, labels, budget = torch.randn(48, 3, 32, 32), torch.arange(48) % 10, 40 << 20
    assert 1 < largest_part(model, inputs, labels, budget) < largest_part(model, inputs, labels, 600 << 20)
    peak = peak_memory(lambda: lipschitz([model], model, inputs, labels, 10, memory=budget))
    assert 0.2 * budget < peak < budget


def test_a_class_without_samples_and_a_client_that_did_not_move_are_unknown() -> None:
    local, center, inputs, labels = problem(mlp)
    values = lipschitz([local[0], copy.deepcopy(center)], center, inputs, labels.clamp(max=2), 4)
    assert np.isnan(values[0, 3]) and np.isfinite(values[0, :3]).all()
    assert np.isnan(values[1]).all()


def test_samples_with_a_gradient_that_is_not_finite_are_dropped_and_counted() -> None:
    local, center, inputs, labels = problem(mlp)
    clean = lipschitz(local, center, inputs[1:], labels[1:], 4)
    poisoned = inputs.clone()
    poisoned[0] = float("nan")
    estimate = estimate_lipschitz(local, center, poisoned, labels, 4)
    np.testing.assert_array_equal(estimate.dropped, [1, 1])
    np.testing.assert_allclose(estimate.values, clean, rtol=1e-5)
    with torch.no_grad():
        next(local[1].parameters()).fill_(float("nan"))
    estimate = estimate_lipschitz(local, center, inputs, labels, 4)
    assert np.isnan(estimate.values[1]).all() and np.isfinite(estimate.values[0]).all()


def test_global_gradients_are_computed_once_for_all_clients() -> None:
    local, center, inputs, labels = problem(mlp, clients=5)
    passes = []
    center.register_forward_hook(lambda module, args, output: passes.append(len(args[0])))
    estimate = estimate_lipschitz(local, center, inputs, labels, 4)
    assert estimate.gradient_evaluations == 6 * len(labels)
    assert sum(passes) < 2 * len(labels)  # the pass itself, the spot check and the look at memory


def test_gradient_norms_of_single_samples() -> None:
    _, center, inputs, labels = problem(groupnorm)
    norms = sample_gradient_norms(center, inputs, labels, memory=1 << 20)
    with evaluation_mode(center):
        slow = dict(one_by_one(center, Samples(inputs, labels)))
    expected = torch.stack([g.flatten(1).double().pow(2).sum(1) for g in slow.values()]).sum(0).sqrt()
    torch.testing.assert_close(norms, expected, rtol=1e-4, atol=0.0)


def test_wrong_input_is_named() -> None:
    local, center, inputs, labels = problem(mlp)
    labels[3] = 4
    with pytest.raises(ValueError, match=r"labels\[3\] is 4: it must lie in 0 .. 3"):
        lipschitz(local, center, inputs, labels, 4)
    with pytest.raises(ValueError, match=r"local_models\[1\]"):
        lipschitz([local[0], nn.Linear(3, 4)], center, inputs, labels.clamp(max=3), 4)
    for wrong, message in (
        ((local, center, inputs, labels.clamp(max=3).float(), 4), "vector of whole numbers"),
        ((local, center, inputs, labels.clamp(max=3)[:, None], 4), "vector of whole numbers"),
        ((local, center, inputs, labels, 9), "gives only 4 logits"),
        (([], nn.Flatten(), inputs, labels, 4), "no trainable parameter"),
        (
            ([], nn.Sequential(nn.Flatten(), nn.BatchNorm1d(192, track_running_stats=False)), inputs, labels, 4),
            "undefined",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            lipschitz(*wrong)
    with pytest.raises(ValueError, match="same number of samples"):
        lipschitz(local, center, inputs[:5], labels.clamp(max=3), 4)
