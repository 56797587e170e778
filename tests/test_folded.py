"""A convolution and the BatchNorm behind it as one layer: the same values, the same gradients of single samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from isfl.kernels import FastConv2d, with_fast_convolutions
from isfl.smoothness.batched import UnseenUseError
from isfl.smoothness.folded import folded
from isfl.smoothness.per_sample import _dense, one_by_one
from isfl.smoothness.samples import Samples
from tests.convolutions import close, needs_compiler, random

AFTER: dict[str, Callable[[], nn.Module]] = {
    "in place": lambda: nn.ReLU(inplace=True),
    "a copy": nn.ReLU,
    "pooling": lambda: nn.MaxPool2d(2),
}


def network(after: Callable[[], nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    """Return a model of two pairs, each followed by the layer `after`."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1, bias=bias), nn.BatchNorm2d(16), after()),
            *(nn.Conv2d(16, 16, 3, padding=1, bias=bias), nn.BatchNorm2d(16, eps=0.1), after()),
            *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 4)),
        )
        for layer in model:
            if isinstance(layer, nn.BatchNorm2d):
                assert layer.running_mean is not None and layer.running_var is not None
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)
                nn.init.uniform_(layer.weight, -1.5, 1.5).data[0] = 1
                layer.weight.data[layer.weight.abs() < 0.1] = -0.5
                nn.init.normal_(layer.bias)
    return model.eval()


def pairs(model: nn.Module) -> int:
    """Return the number of folded pairs."""
    with folded(model) as found:
        return len(found)


def agree(model: nn.Module) -> None:
    """Compare with one backward pass per sample, which folds nothing."""
    kind = next(model.parameters()).dtype
    inputs, labels = random(3, 3, 8, 8, seed=1).to(kind), torch.arange(3)
    slow, fast = dict(one_by_one(model, Samples(inputs, labels))), _dense(model, Samples(inputs, labels))
    assert slow.keys() == fast.keys()
    for name in slow:
        if kind == torch.float64:
            torch.testing.assert_close(fast[name], slow[name], rtol=1e-8, atol=1e-10)
        else:
            close(fast[name], slow[name])


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize("bias", [True, False])
def test_folding_keeps_values_and_gradients(after: Callable[[], nn.Module], bias: bool) -> None:
    model = network(after, bias).double()
    inputs = random(2, 3, 8, 8, seed=0).double()
    expected, inner = model(inputs.clone()), model[0](inputs)
    with folded(model) as found:
        assert len(found) == 2
        torch.testing.assert_close(model(inputs.clone()), expected)
        assert torch.equal(model[0](inputs), inner)  # a layer by itself is what it was
    assert torch.equal(model(inputs.clone()), expected)
    agree(model)


@needs_compiler
@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
def test_folding_keeps_values_and_gradients_of_compiled_convolutions(after: Callable[[], nn.Module]) -> None:
    model = with_fast_convolutions(network(after))
    assert isinstance(model.get_submodule("0"), FastConv2d) and pairs(model) == 2
    agree(model)


def test_frozen_parameters_have_no_gradient() -> None:
    model = network().double()
    model.get_parameter("0.weight").requires_grad_(False)
    model.get_parameter("4.bias").requires_grad_(False)
    agree(model)


def small(channel: float, shift: float) -> nn.Sequential:
    model = network().double()
    with torch.no_grad():
        model.get_parameter("1.weight")[3] = channel
        model.get_parameter("1.bias")[3] = shift
    return model


class Again(nn.Module):
    """One layer used in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()
        self.same = self.body[0]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


def touched(how: Callable[[nn.Module], object], layer: int = 0) -> nn.Module:
    model = network()
    how(model[layer])
    return model


def without_shift() -> nn.Module:
    model = network()
    model[1] = nn.BatchNorm2d(16, bias=False).eval()
    return model


class Empty(nn.Identity):
    """A layer whose truth value is False."""

    def __len__(self) -> int:
        return 0

    def forward(self, input: Tensor) -> Tensor:
        return 2 * input


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (network().train(), 0),
        (nn.Sequential(*list(network())[:5]), 1),  # the output may be used in unknown ways
        (network(nn.Tanh), 0),
        (network(lambda: nn.ELU(inplace=True)), 0),
        (small(0.0, 0.0), 1),  # there is no dividing by that
        (small(-1e-3, 0.0), 1),
        (small(0.1, 100.0), 1),
        (small(-0.1, 0.0), 2),
        (Again(), 1),
        (touched(lambda layer: layer.register_forward_hook(lambda *_: None)), 1),
        (touched(lambda layer: layer.register_full_backward_pre_hook(lambda *_: None), 1), 1),
        (touched(lambda layer: layer.register_forward_pre_hook(lambda *_: None), 2), 1),
        (touched(lambda layer: setattr(layer, "forward", lambda x: x)), 1),
        (without_shift(), 1),
        (type("Mine", (nn.Sequential,), {"forward": lambda self, x: x})(*network()), 0),
    ],
    ids=range(15),
)
def test_only_certain_pairs_are_folded(model: nn.Module, expected: int) -> None:
    assert pairs(model) == expected


def test_a_pair_that_is_not_folded_has_the_same_gradients() -> None:
    for model in (small(0.0, 0.0), small(-1e-3, 0.0), small(0.1, 100.0)):
        agree(model)


class Stepwise(nn.Module):
    """Calls the layers of a Sequential one by one; also the Sequential, if `twice`."""

    def __init__(self, twice: bool) -> None:
        super().__init__()
        self.body, self.twice = network().double(), twice

    def forward(self, x: Tensor) -> Tensor:
        logits = self.body(x) if self.twice else torch.zeros(len(x), 4, dtype=x.dtype)
        for layer in self.body:
            x = layer(x)
        return logits + x


def test_layers_may_be_called_without_their_sequence() -> None:
    agree(Stepwise(twice=False))


def test_layers_called_in_both_ways_are_refused() -> None:
    with pytest.raises(UnseenUseError, match="folded"):
        agree(Stepwise(twice=True))


def test_every_layer_is_called() -> None:
    model = network().double()
    model.insert(3, Empty())
    assert pairs(model) == 2
    inputs = random(2, 3, 8, 8, seed=0).double()
    expected = model(inputs)
    with folded(model):
        torch.testing.assert_close(model(inputs), expected)


@needs_compiler
def test_a_shift_may_lie_anywhere_in_memory() -> None:
    model = with_fast_convolutions(network())
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            # Not the weight: torch's own BatchNorm reads a strided weight wrongly for channels-last inputs.
            layer.bias = nn.Parameter(torch.stack([layer.bias.detach(), torch.full((16,), 7.0)], 1)[:, 0])
    assert not model.get_parameter("1.bias").is_contiguous() and pairs(model) == 2
    agree(model)


def test_one_activation_can_serve_all_pairs() -> None:
    model, activation = network().double(), nn.ReLU(inplace=True)
    model[2] = model[5] = activation
    assert pairs(model) == 2
    agree(model)


def test_the_model_is_restored_after_success_and_after_an_error() -> None:
    model = network()
    with pytest.raises(KeyError), folded(model):
        raise KeyError("forward" in vars(model))
    assert "forward" not in vars(model)
