"""The light-weight residual networks of the paper's experiments, for images of 32x32."""

from __future__ import annotations

import itertools

from torch import Tensor, nn


def resnet8(input_shape: tuple[int, ...], num_classes: int, width: float = 1.0) -> nn.Module:
    """ResNet8 (468,618 parameters for 3x32x32 and 10 classes at width 1).

    conv3-32, conv3-64 + pool, residual pair of conv3-64, conv3-128 + pool, residual pair of conv3-128, max-pool 4,
    dropout, linear 512->10; every convolution followed by BatchNorm and ReLU.
    """
    channels = _widths((32, 64, 128), width)
    height, breadth = (side // 4 // 4 for side in input_shape[1:])
    return nn.Sequential(
        *_trunk(input_shape[0], channels),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(channels[-1] * height * breadth, num_classes),
    )


def resnet9(input_shape: tuple[int, ...], num_classes: int, width: float = 1.0) -> nn.Module:
    """ResNet9, for CIFAR-100: the same up to the second residual pair, then conv3-256 + pool, residual pair of
    conv3-256, conv3-512 + pool, residual pair of conv3-512, max-pool 2, linear 512->100."""
    channels = _widths((32, 64, 128, 256, 512), width)
    height, breadth = (side // 16 // 2 for side in input_shape[1:])
    return nn.Sequential(
        *_trunk(input_shape[0], channels),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(channels[-1] * height * breadth, num_classes),
    )


def _widths(channels: tuple[int, ...], factor: float) -> list[int]:
    return [max(1, round(n * factor)) for n in channels]


def _trunk(inputs: int, channels: list[int]) -> list[nn.Module]:
    """A first convolution, then for every further width a convolution with pooling and a residual pair."""
    layers: list[nn.Module] = [_conv(inputs, channels[0])]
    for before, after in itertools.pairwise(channels):
        layers += [_conv(before, after, pool=True), Residual(after)]
    return layers


class Residual(nn.Module):
    """Two convolutions around which the input is carried."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels), _conv(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.body(x)
        return out


def _conv(inputs: int, outputs: int, pool: bool = False) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU, and perhaps pooling. Pooling goes before ReLU: the same values and gradients to
    the bit (the largest of what ReLU leaves is what ReLU leaves of the largest), for a quarter of ReLU's work."""
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []), nn.ReLU(inplace=True))
