"""The paper's networks: layer by layer as published."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from isfl.models import MODELS, ModelSettings, build_model
from isfl.models.resnet import Residual, resnet8


def layers_of(model: nn.Module) -> Iterator[str]:
    """The layers in the order they are applied; what is inside a residual pair is indented."""
    for layer in model.children():
        match layer:
            case Residual():
                yield "residual pair"
                yield from (f"  {inner}" for inner in layers_of(layer.body))
            case nn.Sequential():
                yield from layers_of(layer)
            case nn.Conv2d():
                assert layer.stride == (1, 1) and layer.padding == (1, 1) and layer.bias is not None
                yield f"conv{layer.kernel_size[0]} {layer.in_channels}->{layer.out_channels}"
            case nn.BatchNorm2d():
                yield f"batchnorm {layer.num_features}"
            case nn.MaxPool2d():
                yield f"max-pool {layer.kernel_size}"
            case nn.Dropout():
                yield f"dropout {layer.p}"
            case nn.Linear():
                yield f"linear {layer.in_features}->{layer.out_features}"
            case _:
                yield type(layer).__name__


def convolution(inputs: int, outputs: int, pool: bool = False) -> list[str]:
    return [f"conv3 {inputs}->{outputs}", f"batchnorm {outputs}", *(["max-pool 2"] if pool else []), "ReLU"]


def residual_pair(channels: int) -> list[str]:
    return ["residual pair", *(f"  {layer}" for layer in 2 * convolution(channels, channels))]


RESNET8 = [
    *convolution(3, 32),
    *convolution(32, 64, pool=True),
    *residual_pair(64),
    *convolution(64, 128, pool=True),
    *residual_pair(128),
    "max-pool 4",
    "Flatten",
    "dropout 0.5",
    "linear 512->10",
]
RESNET9 = [
    *convolution(3, 32),
    *convolution(32, 64, pool=True),
    *residual_pair(64),
    *convolution(64, 128, pool=True),
    *convolution(128, 256, pool=True),
    *residual_pair(256),
    *convolution(256, 512, pool=True),
    *residual_pair(512),
    "max-pool 2",
    "Flatten",
    "linear 512->100",
]


@pytest.mark.parametrize(
    ("name", "classes", "parameters", "layers"),
    [("resnet8", 10, 468_618, RESNET8), ("resnet9", 100, 7_598_820, RESNET9)],
)
def test_the_published_networks_layer_by_layer(name: str, classes: int, parameters: int, layers: list[str]) -> None:
    model = build_model(ModelSettings(name=name), (3, 32, 32), classes, seed=0)
    assert list(layers_of(model)) == layers
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_a_residual_pair_adds_its_input() -> None:
    pair = Residual(4).eval()
    x = torch.randn(2, 4, 6, 6)
    assert torch.equal(pair(x), x + pair.body(x))


@pytest.mark.parametrize(("width", "channels"), [(0.5, [16, 32, 64]), (0.25, [8, 16, 32]), (2.0, [64, 128, 256])])
def test_a_width_multiplies_every_number_of_channels(width: float, channels: list[int]) -> None:
    a, b, c = channels
    model = build_model(ModelSettings(name="resnet8", width=width), (3, 32, 32), 10, seed=0)
    convolutions = [layer for layer in layers_of(model) if "conv" in layer]
    pairs = [f"  conv3 {n}->{n}" for n in (b, b, c, c)]
    assert convolutions == [f"conv3 3->{a}", f"conv3 {a}->{b}", *pairs[:2], f"conv3 {b}->{c}", *pairs[2:]]


def _as_written(model: nn.Module) -> nn.Module:
    """The same network with ReLU before pooling, the paper's order."""
    for block in list(model.modules()):
        kinds = [type(layer) for layer in block] if isinstance(block, nn.Sequential) else []
        if kinds[-2:] == [nn.MaxPool2d, nn.ReLU]:
            assert isinstance(block, nn.Sequential)
            block[-2], block[-1] = nn.ReLU(), nn.MaxPool2d(2)
    return model


def test_pooling_before_relu_changes_no_bit() -> None:
    torch.manual_seed(0)
    ours = resnet8((3, 32, 32), 10, width=0.25)
    written = _as_written(resnet8((3, 32, 32), 10, width=0.25))
    written.load_state_dict(ours.state_dict())
    assert [type(layer) for layer in written.modules()] != [type(layer) for layer in ours.modules()]
    images = torch.randn(16, 3, 32, 32)
    outputs = []
    for model in (ours, written):
        torch.manual_seed(1)  # dropout
        outputs.append(model(images))
        outputs[-1].square().sum().backward()
    assert torch.equal(*outputs)
    for mine, theirs in zip(ours.parameters(), written.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("width", [0.25, 1.0])
def test_models_give_logits_and_are_a_function_of_the_seed(name: str, width: float) -> None:
    one, two, other = (build_model(ModelSettings(name=name, width=width), (3, 32, 32), 7, seed) for seed in (1, 1, 2))
    x = torch.randn(2, 3, 32, 32)
    for model in (one, two, other):
        model.eval()
    assert one(x).shape == (2, 7) and torch.equal(one(x), two(x)) and not torch.equal(one(x), other(x))
