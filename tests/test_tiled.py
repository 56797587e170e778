"""Gradients of single samples through compiled convolutions, and the Lipschitz values that follow."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from isfl import lipschitz
from isfl.kernels import FastConv2d, with_fast_convolutions
from isfl.models.resnet import resnet8
from isfl.smoothness.gradients import kept, squared_differences, squared_norms
from isfl.smoothness.layers import fast_convolution
from isfl.smoothness.outer import Outer
from isfl.smoothness.tiled import Tiled, tiled
from tests.convolutions import close, needs_compiler, random
from tests.zoo import by_definition


def sample_gradients(x: Tensor, gradient: Tensor) -> Tensor:
    """The oracle: one backward pass per sample, in double precision."""
    weight = torch.zeros(gradient.shape[1], x.shape[1], 3, 3, dtype=torch.float64, requires_grad=True)
    rows = []
    for i in range(len(x)):
        result = F.conv2d(x[i : i + 1].double(), weight, padding=1)
        rows.append(torch.autograd.grad(result, weight, gradient[i : i + 1].double())[0])
    return torch.stack(rows)


@needs_compiler
@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 4),
    size=st.tuples(st.integers(1, 18), st.integers(1, 18)),
    inputs=st.sampled_from([1, 3, 16, 48]),
    outputs=st.sampled_from([16, 32]),
    scaled=st.booleans(),
)
def test_gradients_of_single_samples(
    batch: int, size: tuple[int, int], inputs: int, outputs: int, scaled: bool
) -> None:
    def case(seed: int) -> tuple[Tiled, Tensor]:
        x, gradient = random(batch, inputs, *size, seed=seed), random(batch, outputs, *size, seed=seed + 1)
        scale = random(outputs, seed=seed + 2) if scaled else torch.ones(outputs)
        found = tiled(x, gradient, scale if scaled else None)
        return found, sample_gradients(x, gradient) * scale.view(-1, 1, 1, 1)

    (ours, a), (theirs, b) = case(0), case(3)
    close(ours.dense(), a)
    for found, expected in (
        (squared_norms(ours), a),
        (squared_norms(kept(ours)), a),
        (squared_differences(ours, kept(theirs)), a - b),
        (squared_differences(ours, b.float()), a - b),
    ):
        torch.testing.assert_close(found, (expected**2).flatten(1).sum(1), rtol=1e-4, atol=0.0)


@needs_compiler
@pytest.mark.parametrize(("channels", "size", "form"), [(128, 8, Tiled), (512, 2, Outer)])
def test_factors_are_kept_for_few_pixels_and_many_weights(channels: int, size: int, form: type) -> None:
    """A gradient of 512 x 512 x 9 weights is never computed for four pixels."""
    layer, x = FastConv2d(channels, channels, 3, padding=1), random(1, channels, size, size, seed=0)
    assert type(fast_convolution(layer, x, x)["weight"]) is form


@needs_compiler
def test_a_gradient_that_is_not_finite_stays_not_finite() -> None:
    x, gradient = random(3, 16, 8, 8, seed=0), random(3, 16, 8, 8, seed=1)
    x[1, 0, 0, 0] = torch.inf
    found = tiled(x, gradient)
    for squares in (found.squared_norms(), squared_differences(found, kept(found))):
        assert squares.isfinite().tolist() == [True, False, True]


class Twice(nn.Module):
    """One convolution, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.again(self.first(x)).tanh()).tanh()  # smooth: no kink for rounding to decide about
        out: Tensor = self.last(x.mean((2, 3)))
        return out


@needs_compiler
@pytest.mark.parametrize("network", [Twice, partial(resnet8, (3, 32, 32), 4, 0.5)], ids=["a layer twice", "ResNet8"])
@pytest.mark.parametrize("gap", [0.1, 1e-4])
def test_lipschitz_values_are_those_of_their_definition(network: Callable[[], nn.Module], gap: float) -> None:
    """In double precision and with torch's convolutions; also between models that are nearly equal.

    Rarely, rounding lifts one of a hundred thousand values over a kink of ReLU or pooling. Between models so close this
    is a part of the difference that can be seen, with any convolution in single precision; so not all must be right.
    """
    wrong = []
    for seed in range(3):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            center = network()
            local = copy.deepcopy(center)
            with torch.no_grad():
                for p in local.parameters():
                    p.add_(gap * p.norm() / p.numel() ** 0.5 * torch.randn(p.shape))
            inputs, labels = torch.randn(8, 3, 32, 32), torch.arange(8) % 4
        doubles = [copy.deepcopy(model).double() for model in (local, center)]
        expected = by_definition(doubles[:1], doubles[1], inputs.double(), labels, 4)
        for model in (local, center):
            with_fast_convolutions(model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # batched, not one sample at a time
            found = lipschitz([local], center, inputs, labels, 4)
        wrong += abs(found / expected - 1).ravel().tolist()
    assert sorted(wrong)[8] < 1e-3 and max(wrong) < 0.1
