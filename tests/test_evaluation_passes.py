"""Without gradients, convolution, BatchNorm, ReLU and pooling are one pass, with the same values but for rounding."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from isfl.data import Dataset
from isfl.federation import Settings, evaluation
from isfl.federation.evaluation import outcomes
from isfl.federation.preparation import prepared
from isfl.kernels import tiles, with_fast_convolutions, with_fast_sequences
from isfl.kernels.tiles import Then
from isfl.models.resnet import resnet8
from tests.convolutions import close, needs_compiler, random

AFTER: dict[str, Callable[[], list[nn.Module]]] = {
    "nothing": list,
    "relu": lambda: [nn.ReLU(inplace=True)],
    "pool, relu": lambda: [nn.MaxPool2d(2), nn.ReLU(inplace=True)],
    "relu, pool": lambda: [nn.ReLU(), nn.MaxPool2d(2)],
    "pool": lambda: [nn.MaxPool2d(2)],
    "relu, large pool": lambda: [nn.ReLU(), nn.MaxPool2d(3)],
}


def with_statistics(model: nn.Module) -> nn.Module:
    """Give every BatchNorm statistics and parameters that are not the initial ones."""
    generator = torch.Generator().manual_seed(0)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.running_mean is not None and layer.running_var is not None
            layer.running_mean.normal_(generator=generator)
            layer.running_var.uniform_(0.5, 2, generator=generator)
            for parameter in layer.parameters():
                parameter.data.normal_(generator=generator)
    return model.eval()


def fast(model: nn.Module) -> nn.Module:
    return with_fast_sequences(with_fast_convolutions(copy.deepcopy(model)))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Then]:
    """What each compiled convolution did to its outputs."""
    seen: list[Then] = []
    real = tiles.forward

    def forward(images: Tensor, weight: Tensor, bias: Tensor | None, then: Then = Then.NOTHING) -> Tensor:
        seen.append(then)
        return real(images, weight, bias, then)

    monkeypatch.setattr(tiles, "forward", forward)
    return seen


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(3, 13), st.integers(3, 13)),
    inputs=st.sampled_from([3, 16, 32]),
    outputs=st.sampled_from([16, 48, 20]),
    after=st.sampled_from(list(AFTER)),
    bias=st.booleans(),
    affine=st.booleans(),
)
def test_a_folded_convolution_has_torchs_values(
    size: tuple[int, int], inputs: int, outputs: int, after: str, bias: bool, affine: bool
) -> None:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias), nn.BatchNorm2d(outputs, affine=affine)]
    model = with_statistics(nn.Sequential(*layers, *AFTER[after]()))
    x = random(2, inputs, *size, seed=1)
    with torch.no_grad():
        close(fast(model)(x), copy.deepcopy(model).double()(x.double()))


@needs_compiler
@pytest.mark.parametrize(
    ("after", "expected"),
    [("nothing", Then.NOTHING), ("relu", Then.RELU), ("pool, relu", Then.RELU_AND_POOL), ("pool", Then.NOTHING)],
)
def test_it_is_one_pass(after: str, expected: Then, done: list[Then]) -> None:
    model = fast(with_statistics(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), *AFTER[after]())))
    with torch.no_grad():
        model(random(2, 16, 6, 6, seed=0))
    assert done == [expected]


@needs_compiler
@pytest.mark.parametrize("how", ["gradients", "training", "hook"])
def test_other_passes_keep_the_layers_apart(how: str, done: list[Then]) -> None:
    model = fast(with_statistics(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())))
    seen: list[object] = []
    if how == "hook":
        model.get_submodule("1").register_forward_hook(lambda *_: seen.append(1))
    with torch.set_grad_enabled(how == "gradients"):
        model.train(how == "training")(random(2, 16, 6, 6, seed=0))
    assert done == [Then.NOTHING] and bool(seen) is (how == "hook")


@needs_compiler
@pytest.mark.parametrize("after", ["relu", "pool, relu"])
def test_what_is_not_a_number_stays_visible(after: str) -> None:
    model = fast(with_statistics(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), *AFTER[after]())))
    x = random(1, 16, 8, 8, seed=0)
    x[0, 0, 5, 5] = float("nan")
    with torch.no_grad():
        assert bool(model(x).isnan().any())


@needs_compiler
def test_an_evaluation_finds_what_torch_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses within rounding, the same answers except for ties, however the samples are cut into batches."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = with_statistics(resnet8((3, 32, 32), 10, width=0.5))
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (130, 3, 32, 32), dtype=torch.uint8, generator=generator)
    data = Dataset(images, torch.randint(0, 10, (130,), generator=generator), 10)
    slow = outcomes(copy.deepcopy(model).double(), Dataset(data.everything()[0].double(), data.labels, 10))
    ours = prepared(model, Settings())
    found = outcomes(ours, data)
    np.testing.assert_allclose(found.loss, slow.loss, rtol=1e-4, atol=1e-4)
    assert (found.correct == slow.correct).mean() > 0.99 and (found.correct_top5 == slow.correct_top5).mean() > 0.99
    monkeypatch.setattr(evaluation, "BATCH", 64)
    np.testing.assert_allclose(outcomes(ours, data).loss, found.loss, rtol=1e-5)
