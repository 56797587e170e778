"""Models that the estimators must measure correctly, and the paper's definition as a slow oracle."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
    """A parameter without a batched rule."""

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
    """An embedding that is not called with the batch."""

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
