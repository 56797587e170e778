"""The estimator gives the paper's numbers for every kind of model, within a memory budget."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from isfl import lipschitz
from isfl.smoothness import estimate_lipschitz, sample_gradient_norms
from isfl.smoothness.batched import batched
from isfl.smoothness.models import chunk_size, evaluation_mode, trainable
from isfl.smoothness.per_sample import batched_or_not, gradients_of, one_by_one
from isfl.theory.arrays import Array


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + x
        return out


def resnet_like() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8, eps=0.1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        Residual(8),
        nn.Conv2d(8, 6, 3, stride=2, padding=1, groups=2, dilation=1),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(6 * 2 * 2, 4),
    )


def groupnorm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, (3, 5), padding="same", dilation=(2, 1)),
        nn.GroupNorm(4, 8, eps=0.1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(8, eps=0.1),
        nn.Linear(8, 4),
    )


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(192, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16, bias=False), nn.Linear(16, 4)
    )


class Text(nn.Module):
    """Embeddings, a sequence through linear, convolution and layer norm, pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6, padding_idx=0)
        self.mix = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.conv = nn.Conv1d(6, 5, 3, padding=1)
        self.head = nn.Linear(5, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(torch.relu_(self.mix(self.embedding(tokens))))
        out: Tensor = self.head(self.conv(x.transpose(1, 2)).mean(2))
        return out


class UsedTwice(nn.Module):
    """The same layer twice in one pass: its per-sample gradients must be added before the norm is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(192, 192)
        self.head = nn.Linear(192, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.inner(torch.tanh(self.inner(x.flatten(1))))))
        return out


class OwnParameter(nn.Module):
    """A parameter no rule knows."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(192))
        self.head = nn.Linear(192, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.flatten(1) * self.scale)
        return out


class BehindTheBack(nn.Module):
    """Uses a layer's weight without calling the layer: hooks do not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(192, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(F.linear(x.flatten(1), self.inner.weight))
        return out


class MixesBatch(nn.Module):
    """Centres the batch: one sample's loss depends on the others."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        out: Tensor = self.head(x - x.mean(0)) if len(x) > 1 else self.head(x)
        return out


class OddConvolution(nn.Module):
    """Circular padding is outside the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.wrap = nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")
        self.plain = nn.Conv2d(4, 4, 2, padding=1)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.plain(self.wrap(x)).mean((2, 3)))
        return out


class ZeroBranch(nn.Module):
    """A branch that is silent in the global model and uses a weight without calling its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gate, self.head = nn.Linear(192, 8), nn.Linear(8, 4, bias=False), nn.Linear(192, 4)
        nn.init.zeros_(self.gate.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        out: Tensor = self.head(x) + self.gate(torch.tanh(F.linear(x, self.inner.weight)))
        return out


class Positions(nn.Module):
    """An embedding that is called with something else than the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.head = nn.Embedding(8, 24), nn.Linear(192, 4)

    def forward(self, x: Tensor) -> Tensor:
        shifted = x.reshape(len(x), 8, 24) + self.place(torch.arange(8))
        out: Tensor = self.head(shifted.flatten(1))
        return out


class Routed(nn.Module):
    """Samples go through one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(192, 4), nn.Linear(192, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        out = x.new_zeros(len(x), 4)
        goes_left = x[:, 0] > 0
        out[goes_left] = self.left(x[goes_left])
        out[~goes_left] = self.right(x[~goes_left])
        return out


def spectral() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.utils.spectral_norm(nn.Linear(192, 4)))


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(24, 2, 16, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Flatten(1), nn.Unflatten(1, (8, 24)), layer, nn.Flatten(1), nn.Linear(192, 4))


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(192, 192), nn.Linear(192, 192), nn.Linear(192, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.second(torch.tanh(self.first(x.flatten(1))))))
        return out


FAST: list[Callable[[], nn.Module]] = [resnet_like, groupnorm, mlp, Text, UsedTwice]
SLOW: list[Callable[[], nn.Module]] = [
    OwnParameter,
    BehindTheBack,
    MixesBatch,
    OddConvolution,
    Tied,
    ZeroBranch,
    Positions,
    Routed,
    spectral,
    transformer,
]


def problem(
    make: Callable[[], nn.Module], clients: int = 2, samples: int = 24
) -> tuple[list[nn.Module], nn.Module, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        center = make()
        for module in center.modules():  # running statistics away from their initial values
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
        local = [copy.deepcopy(center) for _ in range(clients)]
        for model in local:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.05 * torch.randn(parameter.shape))
    if make is Text:
        inputs = torch.randint(0, 20, (samples, 7), generator=generator)
    else:
        inputs = torch.randn(samples, 3, 8, 8, generator=generator)
    return local, center, inputs, torch.randint(0, 4, (samples,), generator=generator)


def by_definition(local: list[nn.Module], center: nn.Module, inputs: Tensor, labels: Tensor, classes: int) -> Array:
    """The paper's definition, one sample, one class, one client at a time, in double precision."""
    values = np.full((len(local), classes), np.nan)
    base = copy.deepcopy(center).double().eval()
    for k, model in enumerate(local):
        model = copy.deepcopy(model).double().eval()
        ours, theirs = [p.detach() for p in model.parameters()], [p.detach() for p in base.parameters()]
        gap = sum(float(((a - b) ** 2).sum()) for a, b in zip(ours, theirs, strict=True)) ** 0.5
        for i in range(len(labels)):
            x = inputs[i : i + 1].double() if inputs.is_floating_point() else inputs[i : i + 1]
            grads = [
                torch.autograd.grad(F.cross_entropy(m(x), labels[i : i + 1]), list(m.parameters()), allow_unused=True)
                for m in (model, base)
            ]
            square = sum(
                float(((a - b) ** 2).sum()) for a, b in zip(*grads, strict=True) if a is not None and b is not None
            )
            c = int(labels[i])
            values[k, c] = np.fmax(values[k, c], square**0.5 / gap)
    return values


@pytest.mark.parametrize("make", FAST)
def test_the_batched_way_is_taken_and_equals_the_definition(make: Callable[[], nn.Module]) -> None:
    local, center, inputs, labels = problem(make)
    with evaluation_mode(center, *local), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gradients_of([center, *local], inputs, labels) is batched_or_not
    expected = by_definition(local, center, inputs, labels, 4)
    np.testing.assert_allclose(lipschitz(local, center, inputs, labels, 4), expected, rtol=1e-4)


@pytest.mark.parametrize("make", SLOW)
def test_what_the_rules_do_not_know_is_computed_slowly_and_right(make: Callable[[], nn.Module]) -> None:
    local, center, inputs, labels = problem(make)
    expected = by_definition(local, center, inputs, labels, 4)
    with pytest.warns(UserWarning, match="one at a time"):
        values = lipschitz(local, center, inputs, labels, 4)
    np.testing.assert_allclose(values, expected, rtol=1e-4)


@pytest.mark.parametrize("make", [*FAST, OddConvolution])
def test_per_sample_gradients_agree_parameter_by_parameter(make: Callable[[], nn.Module]) -> None:
    _, center, inputs, labels = problem(make)
    with evaluation_mode(center):
        slow = dict(one_by_one(center, inputs, labels))
        assert set(slow) == set(trainable(center))
        if make is not OddConvolution:
            fast = dict(batched(center, inputs, labels))
            for name in slow:
                torch.testing.assert_close(fast[name], slow[name], rtol=1e-4, atol=1e-5)


def test_the_answer_does_not_depend_on_the_chunk() -> None:
    local, center, inputs, labels = problem(resnet_like)
    whole = lipschitz(local, center, inputs, labels, 4)
    np.testing.assert_allclose(lipschitz(local, center, inputs, labels, 4, memory=1), whole, rtol=1e-5)


def peak_memory(work: Callable[[], object]) -> int:
    """The most bytes that tensors made during the work held at a time, as torch's profiler saw them."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    held = peak = 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def test_memory_stays_within_the_budget() -> None:
    """What autograd and the rules allocate at a time, seen by torch's own allocator hooks."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 10))
    inputs, labels = torch.randn(64, 3, 32, 32), torch.arange(64) % 10
    budget = 100 << 20
    all_at_once = 4 * 64 * sum(p.numel() for p in model.parameters())
    assert all_at_once > 3 * budget
    chunk = chunk_size(model, inputs, budget, copies=4)
    assert 1 < chunk < 64
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_parameter("1.weight").add_(0.1)

    assert 0.2 * budget < peak_memory(lambda: lipschitz([other], model, inputs, labels, 10, memory=budget)) < budget


def test_models_are_left_as_they_were() -> None:
    local, center, inputs, labels = problem(resnet_like)
    center.train()
    local[0].train()
    before = {name: value.clone() for name, value in center.state_dict().items()}
    lipschitz(local, center, inputs, labels, 4)
    assert center.training and local[0].training
    assert all(p.requires_grad and p.grad is None for p in center.parameters())
    assert all(torch.equal(value, before[name]) for name, value in center.state_dict().items())


def test_frozen_parameters_do_not_count() -> None:
    local, center, inputs, labels = problem(mlp)
    for model in (center, *local):
        layer = model.get_submodule("1")
        for parameter in layer.parameters():
            parameter.requires_grad_(False)
    fast = lipschitz(local, center, inputs, labels, 4)
    with evaluation_mode(center):
        assert "1.weight" not in dict(batched(center, inputs, labels))
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


def test_a_checked_sample_that_is_not_finite_hides_nothing() -> None:
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


def test_memory_of_a_convolutional_model_stays_within_the_budget() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32768, 10),
    )
    inputs, labels = torch.randn(48, 3, 32, 32), torch.arange(48) % 10
    assert 1 < chunk_size(model, inputs, 60 << 20, copies=4) < 48
    assert (
        0.2 * (60 << 20)
        < peak_memory(lambda: lipschitz([model], model, inputs, labels, 10, memory=60 << 20))
        < 60 << 20
    )


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
        slow = dict(one_by_one(center, inputs, labels))
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
