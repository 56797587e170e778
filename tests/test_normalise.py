"""BatchNorm, ReLU and pooling in one pass give what torch gives, and torch computes what the compiled code does not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from isfl.federation import Settings
from isfl.federation.preparation import prepared
from isfl.kernels import FastSequential, library, with_fast_sequences
from isfl.kernels.normalise import moments
from isfl.models.resnet import resnet9
from tests.convolutions import needs_compiler, random

ERROR = 1e-5
"""Of the largest value."""
AFTER: dict[str, Callable[[], list[nn.Module]]] = {
    "relu": lambda: [nn.ReLU()],
    "relu in place": lambda: [nn.ReLU(inplace=True)],
    "pool, relu": lambda: [nn.MaxPool2d(2), nn.ReLU(inplace=True)],
    "relu, pool": lambda: [nn.ReLU(), nn.MaxPool2d((2, 2), stride=2)],
}


def norm(channels: int, **arguments: object) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(channels, **arguments)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter, seed in zip(layer.parameters(), (1, 2), strict=False):
            parameter.copy_(random(channels, seed=seed))
    return layer


def close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert float((found.double() - expected.double()).abs().max()) <= ERROR * float(expected.abs().max())


def passes(model: nn.Module, x: Tensor, gradient: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return the result, all gradients and all buffers of a training step."""
    leaf = x.detach().requires_grad_()
    result = model(leaf)
    result.backward(gradient(result))
    return [result.detach(), *(p.grad for p in (leaf, *model.parameters()) if p.grad is not None), *model.buffers()]


def agree(model: nn.Sequential, x: Tensor) -> None:
    """With torch in double precision."""
    fast, truth = with_fast_sequences(copy.deepcopy(model)), copy.deepcopy(model).double()
    found = passes(fast, x, lambda y: random(*y.shape, seed=3))
    for one, other in zip(found, passes(truth, x.double(), lambda y: random(*y.shape, seed=3).double()), strict=True):
        close(one, other)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the compiled functions that were called."""
    from isfl.kernels import normalise

    seen: list[str] = []

    def call(name: str, *arguments: Tensor | int | None) -> None:
        seen.append(name)
        library.call(name, *arguments)

    monkeypatch.setattr(normalise, "call", call)
    return seen


@needs_compiler
@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    batch=st.integers(1, 4),
    size=st.tuples(st.integers(2, 19), st.integers(2, 19)),
    channels=st.sampled_from([16, 32, 48, 64]),
    after=st.sampled_from(list(AFTER)),
    channels_last=st.booleans(),
    offset=st.sampled_from([0.0, -20.0]),
)
def test_a_training_step_is_torchs(
    batch: int, size: tuple[int, int], channels: int, after: str, channels_last: bool, offset: float
) -> None:
    """Values, gradients and running statistics, whatever the sizes; rows and columns left over by pooling included."""
    x = 2 * random(batch, channels, *size, seed=0) + offset
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    agree(nn.Sequential(norm(channels), *AFTER[after]()), x)


@needs_compiler
@pytest.mark.parametrize("after", AFTER)
def test_it_is_computed_in_one_pass(after: str, calls: list[str]) -> None:
    agree(nn.Sequential(norm(16), *AFTER[after]()), random(2, 16, 6, 6, seed=0))
    pooled = "pool" in after
    expected = ["moments", "normalise", "gradient_sums", "normalise_gradient"]
    inside = ["moments", "normalise_pool", "pool_gradient_sums", "normalise_pool_gradient"]
    assert calls == (inside if pooled else expected)


@needs_compiler
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_first_of_equal_pixels_gets_the_gradient(sign: float) -> None:
    """As torch does it. Every cell has the same value more than once."""
    model = nn.Sequential(nn.BatchNorm2d(16), nn.MaxPool2d(2), nn.ReLU())
    nn.init.constant_(model.get_parameter("0.weight"), sign)
    nn.init.constant_(model.get_parameter("0.bias"), 3.0)
    x = torch.randint(0, 2, (3, 16, 8, 6), generator=torch.Generator().manual_seed(0)).float()
    agree(model, x)


@needs_compiler
def test_moments_of_values_far_from_zero_keep_their_digits() -> None:
    images = random(2, 40, 40, 16, seed=0)
    images[0, :20] += 1000  # the first pixels are not like the others
    images += 5000
    found, truth = moments(images), images.double().flatten(0, 2)
    torch.testing.assert_close(found.mean, truth.mean(0), rtol=1e-7, atol=0)
    torch.testing.assert_close(found.variance, truth.var(0, unbiased=False), rtol=1e-6, atol=0)


@needs_compiler
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_a_number_stays_visible(after: str, bad: float) -> None:
    x = random(2, 16, 4, 4, seed=0)
    x[1, 3, 2, 2] = bad
    result = with_fast_sequences(nn.Sequential(norm(16), *AFTER[after]()))(x)
    assert bool(result[:, 3].isnan().all()) and not bool(result[:, :3].isnan().any())


@needs_compiler
def test_an_average_over_all_batches() -> None:
    """`momentum=None`, which re-estimated statistics use."""
    slow = nn.Sequential(norm(16, momentum=None), nn.ReLU())
    fast = with_fast_sequences(copy.deepcopy(slow))
    with torch.no_grad():
        for seed in range(3):
            x = random(2, 16, 5, 5, seed=seed)
            close(fast(x), slow(x))
    for name, value in slow.state_dict().items():
        close(fast.state_dict()[name], value)


def hooked() -> nn.Sequential:
    model = nn.Sequential(norm(16), nn.ReLU())
    model[1].register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Sequential(norm(16), nn.ReLU()).eval(), random(2, 16, 4, 4, seed=0)),
        (nn.Sequential(norm(16).eval(), nn.ReLU()), random(2, 16, 4, 4, seed=0)),
        (nn.Sequential(norm(16, affine=False), nn.ReLU()), random(2, 16, 4, 4, seed=0)),
        (nn.Sequential(norm(16, track_running_stats=False), nn.ReLU()), random(2, 16, 4, 4, seed=0)),
        (nn.Sequential(norm(24), nn.ReLU()), random(2, 24, 4, 4, seed=0)),
        (nn.Sequential(norm(16), nn.ReLU()).double(), random(2, 16, 4, 4, seed=0).double()),
        (nn.Sequential(norm(16), nn.GELU()), random(2, 16, 4, 4, seed=0)),
        (nn.Sequential(norm(16), nn.MaxPool2d(3), nn.ReLU()), random(2, 16, 6, 6, seed=0)),
        (nn.Sequential(norm(16), nn.MaxPool2d(2), nn.GELU()), random(2, 16, 6, 6, seed=0)),
        (nn.Sequential(norm(16)), random(2, 16, 4, 4, seed=0)),
        (hooked(), random(2, 16, 4, 4, seed=0)),
    ],
    ids=(
        "eval",
        "frozen statistics",
        "no scale",
        "no statistics",
        "channels",
        "double",
        "not relu",
        "cells of 3",
        "pooling alone",
        "last",
        "hook",
    ),
)
def test_everything_else_is_left_to_torch(model: nn.Sequential, x: Tensor, calls: list[str]) -> None:
    fast = with_fast_sequences(copy.deepcopy(model))
    assert torch.equal(fast(x), model(x)) and not calls
    for name, value in model.state_dict().items():
        assert torch.equal(fast.state_dict()[name], value)


@pytest.mark.parametrize("pooling", [nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(2, stride=1), nn.MaxPool2d(4)])
def test_other_pooling_stays_behind_a_compiled_relu(pooling: nn.MaxPool2d) -> None:
    agree(nn.Sequential(norm(16), nn.ReLU(), pooling), random(2, 16, 9, 9, seed=0))


def test_a_single_pixel_has_no_variance() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        with_fast_sequences(nn.Sequential(norm(16), nn.ReLU()))(random(1, 16, 1, 1, seed=0))


@needs_compiler
def test_the_result_may_be_changed_in_place() -> None:
    """Nothing of it is needed for the gradient."""
    fast = with_fast_sequences(nn.Sequential(norm(16), nn.ReLU(), nn.Flatten()))
    x = random(2, 16, 4, 4, seed=0).requires_grad_()
    (expected,) = torch.autograd.grad((3 * fast(x)).sum(), [x])
    (found,) = torch.autograd.grad(fast(x).mul_(3).sum(), [x])
    assert torch.equal(found, expected)


@needs_compiler
def test_a_residual_network_takes_torchs_step() -> None:
    """The whole network, with torch's convolutions: their rounding moves a few values across ReLU's corner."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = resnet9((3, 32, 32), 10, width=0.5)
    inputs, labels = random(16, 3, 32, 32, seed=1), torch.arange(16) % 10

    def gradients(model: nn.Module) -> list[Tensor]:
        kind = next(model.parameters()).dtype
        return list(torch.autograd.grad(F.cross_entropy(model(inputs.to(kind)), labels), list(model.parameters())))

    fast = with_fast_sequences(copy.deepcopy(model))
    assert sum(isinstance(module, FastSequential) for module in fast.modules()) > 8
    truth, found = gradients(copy.deepcopy(model).double()), gradients(fast)
    largest = max(float(g.abs().max()) for g in truth)
    assert max(float((a - b).abs().max()) for a, b in zip(found, truth, strict=True)) < 2e-5 * largest


class Mine(nn.Sequential):
    """A subclass, which may do something else."""


@needs_compiler
def test_only_a_copy_of_the_model_is_made_fast() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), norm(16), nn.ReLU(), Mine(nn.ReLU()))
    fast = prepared(model, Settings())
    assert type(model) is nn.Sequential and type(fast) is FastSequential
    assert not isinstance(fast[3], FastSequential)
    assert list(fast.state_dict()) == list(model.state_dict())
    again = pickle.loads(pickle.dumps(copy.deepcopy(fast)))
    x = random(2, 3, 8, 8, seed=0)
    assert torch.equal(again(x), fast(x))


def test_one_word_turns_it_off() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), norm(16), nn.ReLU())
    assert type(prepared(model, Settings.model_validate({"training": {"convolutions": "torch"}}))) is nn.Sequential


def test_without_a_compiler_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = with_fast_sequences(nn.Sequential(norm(16), nn.ReLU()))
    monkeypatch.setattr(library, "available", lambda: False)
    plain = nn.Sequential(norm(16), nn.ReLU())
    x = random(2, 16, 4, 4, seed=0)
    assert torch.equal(fast(x), plain(x))
