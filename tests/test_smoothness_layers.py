"""Every batched rule and every norm of differences equals one backward pass per sample, for any layer settings."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from isfl import lipschitz
from isfl.models.resnet import resnet8
from isfl.smoothness import sample_gradient_norms
from isfl.smoothness.gradients import Gradient, kept, squared_differences, squared_norms
from isfl.smoothness.models import evaluation_mode
from isfl.smoothness.outer import Outer
from isfl.smoothness.per_sample import _dense, one_by_one
from isfl.smoothness.samples import Samples
from tests.zoo import by_definition, problem


def agree(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    with evaluation_mode(model):
        slow, fast = dict(one_by_one(model, Samples(inputs, labels))), _dense(model, Samples(inputs, labels))
    assert slow.keys() == fast.keys()
    for name in slow:
        torch.testing.assert_close(fast[name], slow[name], rtol=1e-8, atol=1e-10)


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(deadline=None, max_examples=60)
@given(
    kernel=pairs,
    stride=pairs,
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=pairs,
    groups=st.integers(1, 3),
    widths=pairs,
    channels_last=st.booleans(),
)
def test_a_convolution_of_any_kind(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    widths: tuple[int, int],
    channels_last: bool,
) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, groups * widths[0], 9, 8, generator=generator, dtype=torch.float64)
    if channels_last:
        inputs = inputs.to(memory_format=torch.channels_last)
    layer = nn.Conv2d(
        inputs.shape[1], groups * widths[1], kernel, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten()).double()
    agree(model, inputs, torch.zeros(3, dtype=torch.long))


@settings(deadline=None, max_examples=20)
@given(
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.integers(1, 2),
)
def test_a_convolution_in_one_dimension_before_an_operation_in_place(
    kernel: int, stride: int, padding: int, dilation: int, groups: int
) -> None:
    """Its output is a view: an operation in place on it must not lose the gradient."""
    layer = nn.Conv1d(4, 6, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)
    model = nn.Sequential(layer, nn.ELU(inplace=True), nn.Flatten()).double()
    inputs = torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    agree(model, inputs, torch.zeros(3, dtype=torch.long))


class Twice(nn.Module):
    """One layer on images of two sizes, and another on vectors and on sequences of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(F.max_pool2d(self.conv(x).relu_(), 2))
        out: Tensor = self.mix(x.mean((2, 3))) + self.mix(x.flatten(2).transpose(1, 2)).amax(1)
        return out


def test_a_layer_used_in_several_ways() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, inputs = Twice().double(), torch.randn(4, 3, 8, 8, dtype=torch.float64)
    agree(model, inputs, torch.tensor([0, 1, 2, 0]))


@settings(deadline=None, max_examples=60)
@given(
    t=st.integers(1, 20),
    o=st.integers(1, 6),
    p=st.integers(1, 6),
    groups=st.integers(1, 3),
    gap=st.sampled_from([1.0, 1e-3]),
)
def test_norms_do_not_depend_on_the_form(t: int, o: int, p: int, groups: int, gap: float) -> None:
    """Gram matrices, products, and every mixture of the two give the same norms."""
    generator = torch.Generator().manual_seed(t + 100 * o)

    def near(value: Tensor) -> Tensor:
        return value + gap * torch.randn(value.shape, generator=generator, dtype=torch.float64)

    d = torch.randn(5, groups, t, o, generator=generator, dtype=torch.float64)
    x = torch.randn(5, groups, t, p, generator=generator, dtype=torch.float64)
    ours = Outer(((near(d), near(x)),), 1, lambda g: g)
    theirs = Outer(((d, x),), 1, lambda g: g)
    a, b = ours.dense(), theirs.dense()
    np.testing.assert_allclose(squared_norms(ours), (a**2).flatten(1).sum(1), rtol=1e-9)
    forms: list[tuple[Gradient, Gradient]] = [
        (ours, theirs),
        (ours, kept(theirs)),
        (ours, theirs.product()),
        (a, theirs),
        (a, b),
    ]
    for one, other in forms:
        np.testing.assert_allclose(squared_differences(one, other), ((a - b) ** 2).flatten(1).sum(1), rtol=1e-8)


def nearly_equal(channels_last: bool) -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    """A local model 1e-4 (relative) away from the global one."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        center = resnet8((3, 32, 32), 4, width=0.25)
        local = copy.deepcopy(center)
        with torch.no_grad():
            for p in local.parameters():
                p.add_(1e-4 * p.norm() / p.numel() ** 0.5 * torch.randn(p.shape))
        inputs, labels = torch.randn(12, 3, 32, 32), torch.arange(12) % 4
    if channels_last:
        for model in (local, center):
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = inputs.to(memory_format=torch.channels_last)
    return local, center, inputs, labels


@pytest.mark.parametrize("channels_last", [True, False])
def test_models_that_are_nearly_equal_are_measured_accurately(channels_last: bool) -> None:
    """In single precision; both forms of a difference occur in this model."""
    local, center, inputs, labels = nearly_equal(channels_last)
    expected = by_definition([local], center, inputs, labels, 4)
    np.testing.assert_allclose(lipschitz([local], center, inputs, labels, 4), expected, rtol=1e-2)


def wide() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def test_wide_models_that_are_nearly_equal_are_measured_accurately() -> None:
    """Every difference comes from Gram matrices; a naive expansion would leave only rounding errors."""
    _, center, inputs, labels = problem(wide)
    local = copy.deepcopy(center)
    with torch.no_grad():
        for p in local.parameters():
            noise = torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))
            p.add_(1e-4 * p.norm() / p.numel() ** 0.5 * noise)
    expected = by_definition([local], center, inputs, labels, 4)
    np.testing.assert_allclose(lipschitz([local], center, inputs, labels, 4), expected, rtol=1e-2)


def test_gradient_norms_of_a_residual_network() -> None:
    _, center, inputs, labels = nearly_equal(True)
    with evaluation_mode(center):
        slow = dict(one_by_one(center, Samples(inputs, labels)))
    expected = torch.stack([squared_norms(g) for g in slow.values()]).sum(0).sqrt()
    torch.testing.assert_close(sample_gradient_norms(center, inputs, labels), expected, rtol=1e-4, atol=0.0)
