"""The light-weight residual networks of the paper's experiments, for images of 32x32: Zhu, Shi, Fan, Peng, Letaief,
"ISFL: Federated Learning for Non-i.i.d. Data with Local Importance Sampling", IEEE Internet of Things Journal 2024.
Residual learning is by He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016."""

from __future__ import annotations

from torch import Tensor, nn

from isfl.models.base import NamedModel


def resnet8(input_shape: tuple[int, ...], num_classes: int, width: float = 1.0) -> nn.Module:
    """ResNet8 (468,618 parameters for 3x32x32 and 10 classes at width 1).

    conv3-32, conv3-64 + pool, residual pair of conv3-64, conv3-128 + pool, residual pair of conv3-128, max-pool 4,
    dropout 0.5, linear 512->10; every convolution followed by BatchNorm and ReLU.
    """
    a, b, c = _widths((32, 64, 128), width)
    height, breadth = (side // 4 // 4 for side in input_shape[1:])
    return nn.Sequential(
        _conv(input_shape[0], a),
        _conv(a, b, pool=True),
        Residual(b),
        _conv(b, c, pool=True),
        Residual(c),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(c * height * breadth, num_classes),
    )


def resnet9(input_shape: tuple[int, ...], num_classes: int, width: float = 1.0) -> nn.Module:
    """ResNet9, for CIFAR-100 (7,598,820 parameters for 3x32x32 and 100 classes at width 1).

    conv3-32, conv3-64 + pool, residual pair of conv3-64, conv3-128 + pool, conv3-256 + pool, residual pair of
    conv3-256, conv3-512 + pool, residual pair of conv3-512, max-pool 2, linear 512->100; no dropout.
    """
    a, b, c, d, e = _widths((32, 64, 128, 256, 512), width)
    height, breadth = (side // 16 // 2 for side in input_shape[1:])
    return nn.Sequential(
        _conv(input_shape[0], a),
        _conv(a, b, pool=True),
        Residual(b),
        _conv(b, c, pool=True),
        _conv(c, d, pool=True),
        Residual(d),
        _conv(d, e, pool=True),
        Residual(e),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(e * height * breadth, num_classes),
    )


def _widths(channels: tuple[int, ...], factor: float) -> list[int]:
    return [max(1, round(n * factor)) for n in channels]


class Residual(nn.Module):
    """Two convolutions with a skip connection around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels), _conv(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.body(x)
        return out


def _conv(inputs: int, outputs: int, pool: bool = False) -> nn.Sequential:
    """Return convolution, BatchNorm, ReLU and, if asked for, pooling.

    Pooling goes before ReLU for a quarter of ReLU's work: the two commute, with the same values and gradients to the
    bit.
    """
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []), nn.ReLU(inplace=True))


RESNET8 = NamedModel("resnet8", resnet8, smallest_image=16)
RESNET9 = NamedModel("resnet9", resnet9, smallest_image=32)
