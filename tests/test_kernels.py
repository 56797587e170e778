"""Compiled convolutions equal torch's, and fall back to torch."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from isfl.kernels import FastConv2d, few, library, tiles, with_fast_convolutions, with_fast_sequences
from isfl.kernels.convolve import convolve
from isfl.models.resnet import resnet8
from tests.convolutions import close, needs_compiler, random


def in_double(x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor) -> list[Tensor]:
    """The oracle: torch's convolution and its gradients in double precision."""
    leaves = [t.detach().double().requires_grad_() for t in (x, weight, *(() if bias is None else (bias,)))]
    result = F.conv2d(leaves[0], leaves[1], leaves[2] if bias is not None else None, padding=1)
    return [result, *torch.autograd.grad(result, leaves, gradient.double())]


def ours(x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor) -> list[Tensor]:
    leaves = [t.detach().requires_grad_() for t in (x, weight, *(() if bias is None else (bias,)))]
    result = convolve(leaves[0], leaves[1], leaves[2] if bias is not None else None)
    return [result, *torch.autograd.grad(result, leaves, gradient)]


# ------------------------------------------------------------ the convolution


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(
    batch=st.integers(1, 5),
    size=st.tuples(st.integers(1, 18), st.integers(1, 18)),
    inputs=st.sampled_from([16, 32, 48]),
    outputs=st.sampled_from([16, 48, 64]),
    with_bias=st.booleans(),
    channels_last=st.booleans(),
    cached=st.sampled_from([1, 1 << 18, tiles.CACHED]),
)
def test_a_convolution_is_torchs(
    batch: int,
    size: tuple[int, int],
    inputs: int,
    outputs: int,
    with_bias: bool,
    channels_last: bool,
    cached: int,
) -> None:
    """For any size, memory layout and batch size."""
    x, weight = random(batch, inputs, *size, seed=1), random(outputs, inputs, 3, 3, seed=2)
    if channels_last:
        x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (x, weight))
    bias = random(outputs, seed=3) if with_bias else None
    gradient = random(batch, outputs, *size, seed=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "CACHED", cached)
        found = ours(x, weight, bias, gradient)
    for one, other in zip(found, in_double(x, weight, bias, gradient), strict=True):
        close(one, other)


@needs_compiler
def test_gradients_that_are_not_requested_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weight gradient is a third of the work, and the estimators never ask for it."""
    asked: list[tuple[bool, bool]] = []
    real = tiles.backward

    def spy(
        gradients: Tensor, images: Tensor, weight: Tensor, for_images: bool, for_weight: bool
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        asked.append((for_images, for_weight))
        return real(gradients, images, weight, for_images, for_weight)

    monkeypatch.setattr(tiles, "backward", spy)
    x, layer = random(2, 16, 8, 8, seed=0).requires_grad_(), FastConv2d(16, 16, 3, padding=1)
    torch.autograd.grad(layer(x * 2).sum(), [x])
    layer(x.detach()).sum().backward()
    layer(x).sum().backward()
    assert asked == [(True, False), (False, True), (True, True)]


@needs_compiler
def test_frozen_parameters_get_no_gradient() -> None:
    layer = FastConv2d(16, 16, 3, padding=1)
    layer.weight.requires_grad_(False)
    layer(random(1, 16, 4, 4, seed=0)).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias is not None and layer.bias.grad is not None and bool((layer.bias.grad == 16).all())


@needs_compiler
@settings(deadline=None, max_examples=40)
@given(
    batch=st.integers(1, 4),
    size=st.tuples(st.integers(1, 19), st.integers(1, 19)),
    inputs=st.integers(1, few.MOST),
    outputs=st.sampled_from([16, 48, 64]),
    with_bias=st.booleans(),
    channels_last=st.booleans(),
)
def test_a_convolution_over_few_channels_is_torchs(
    batch: int, size: tuple[int, int], inputs: int, outputs: int, with_bias: bool, channels_last: bool
) -> None:
    x, weight = random(batch, inputs, *size, seed=1), random(outputs, inputs, 3, 3, seed=2)
    if channels_last:
        x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (x, weight))
    bias = random(outputs, seed=3) if with_bias else None
    gradient = random(batch, outputs, *size, seed=4)
    for one, other in zip(ours(x, weight, bias, gradient), in_double(x, weight, bias, gradient), strict=True):
        close(one, other)
    relu = few.forward(library.as_images(x), weight, bias, relu=True)
    close(relu, in_double(x, weight, bias, gradient)[0].relu())


@needs_compiler
@pytest.mark.parametrize("channels", [few.MOST, few.MOST + 1, 16])
def test_the_first_convolution_of_a_model_is_compiled_too(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With gradients, and folded with its BatchNorm and ReLU."""
    calls: list[str] = []

    def call(name: str, *arguments: Tensor | int | None) -> None:
        calls.append(name)
        library.call(name, *arguments)

    for way in (few, tiles):
        monkeypatch.setattr(way, "call", call)
    model = nn.Sequential(nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    fast, x = with_fast_sequences(with_fast_convolutions(copy.deepcopy(model))), random(2, channels, 8, 8, seed=0)
    fast(x).sum().backward()
    expected = {few.MOST: ["few_forward", "few_gradients"], 16: ["forward", "backward"]}.get(channels, [])
    assert calls == expected
    fast.load_state_dict(model.state_dict())
    with torch.no_grad():
        close(fast.eval()(x), model.eval()(x))
    assert calls == expected + expected[:1]


# ------------------------------------------------------------ layers


@needs_compiler
def test_only_suitable_convolutions_become_fast() -> None:
    suit = [nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(3, 16, 3, padding="same", bias=False)]
    others = [
        nn.Conv2d(16, 24, 3, padding=1),
        nn.Conv2d(16, 16, 3),
        nn.Conv2d(16, 16, 5, padding=1),
        nn.Conv2d(16, 16, 3, padding=1, stride=2),
        nn.Conv2d(16, 16, 3, padding=1, dilation=2),
        nn.Conv2d(16, 16, 3, padding=1, groups=2),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"),
        type("Mine", (nn.Conv2d,), {})(16, 16, 3, padding=1),
    ]
    with_fast_convolutions(nn.ModuleList([*suit, *others]))
    assert all(isinstance(layer, FastConv2d) for layer in suit)
    assert not any(isinstance(layer, FastConv2d) for layer in others)


@needs_compiler
def test_a_fast_model_is_the_same_model() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        slow = resnet8((3, 32, 32), 10, width=0.5).eval()
    fast = with_fast_convolutions(copy.deepcopy(slow))
    assert sum(isinstance(layer, FastConv2d) for layer in fast.modules()) == 7
    inputs, labels = random(6, 3, 32, 32, seed=1), torch.arange(6)
    losses = [F.cross_entropy(model(inputs), labels) for model in (slow, fast)]
    close(losses[1], losses[0])
    gradients = [torch.autograd.grad(loss, list(m.parameters())) for loss, m in zip(losses, (slow, fast), strict=True)]
    for one, other in zip(*gradients, strict=True):
        close(other, one)
    assert slow.state_dict().keys() == fast.state_dict().keys()
    again = pickle.loads(pickle.dumps(copy.deepcopy(fast)))
    assert torch.equal(again(inputs), fast(inputs))


@pytest.mark.parametrize(
    "inputs",
    [random(2, 16, 6, 6, seed=0).double(), torch.empty(0, 16, 6, 6), random(16, 6, 6, seed=0)],
    ids=["double", "empty batch", "one image"],
)
def test_other_inputs_fall_back_to_torch(inputs: Tensor) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = FastConv2d(16, 16, 3, padding=1).to(inputs.dtype)
    assert torch.equal(layer(inputs), F.conv2d(inputs, layer.weight, layer.bias, padding=1))


@pytest.mark.parametrize(
    "layer",
    [
        FastConv2d(16, 10, 3, padding=1),
        FastConv2d(16, 16, 5, padding=2),
        FastConv2d(16, 16, 3, padding=1, stride=2),
        FastConv2d(16, 16, 3, padding=1, groups=2),
    ],
    ids=["outputs", "kernel", "stride", "groups"],
)
def test_other_layers_fall_back_to_torch(layer: FastConv2d) -> None:
    """However the layer got its settings."""
    inputs = random(2, 16, 6, 6, seed=0)
    assert torch.equal(layer(inputs), nn.Conv2d._conv_forward(layer, inputs, layer.weight, layer.bias))


@needs_compiler
def test_torchs_defaults_do_not_matter() -> None:
    """Results have the type and device of the inputs, whatever torch's defaults are."""
    layer, inputs, gradient = FastConv2d(16, 16, 3, padding=1), random(2, 16, 6, 6, seed=0), random(2, 6, 6, 16, seed=1)
    images = library.as_images(inputs)
    expected = layer(inputs), tiles.squared_differences(gradient, images, None)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        library._memory.held = None
        with torch.device("meta"):
            found = layer(inputs), tiles.squared_differences(gradient, images, None)
    finally:
        torch.set_default_dtype(before)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


def test_the_wrong_number_of_channels_raises_torchs_error() -> None:
    """The compiled functions would read out of bounds."""
    with pytest.raises(RuntimeError, match="to have 16 channels, but got 32"):
        FastConv2d(16, 16, 3, padding=1)(random(2, 32, 6, 6, seed=0))


@needs_compiler
def test_parameters_may_lie_anywhere_in_memory() -> None:
    layer = FastConv2d(16, 16, 3, padding=1)
    x, gradient = random(2, 16, 6, 6, seed=0), random(2, 16, 6, 6, seed=1)
    weight, bias = random(16, 3, 3, 2, 16, seed=2)[..., 1, :].permute(3, 0, 1, 2), random(16, 2, seed=3)[:, 0]
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    assert not layer.weight.is_contiguous() and not layer.bias.is_contiguous()
    for one, other in zip(ours(x, weight, bias, gradient), in_double(x, weight, bias, gradient), strict=True):
        close(one, other)
    close(layer(x), F.conv2d(x.double(), weight.double(), bias.double(), padding=1))
