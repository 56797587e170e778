"""Networks other than ResNet8 that rounds are compared on. Needs torch only."""

from __future__ import annotations

import math
from types import ModuleType

import torch
from torch import Tensor, nn

WORDS, LENGTH = 2000, 64
"""Vocabulary and length of the sequences of tokens."""
IMAGE = (3, 32, 32)
CLASSES = 10


def network(name: str, resnet: ModuleType) -> nn.Module:
    """Return a network by name, with the same weights in every process; `resnet` is the module `isfl.models.resnet`."""
    torch.manual_seed(0)
    match name:
        case "resnet8" | "resnet9":
            model: nn.Module = getattr(resnet, name)(IMAGE, CLASSES)
        case "groupnorm":
            model = _with_group_norm(resnet.resnet8(IMAGE, CLASSES))
        case "mlp":
            layers = (nn.Linear(math.prod(IMAGE), 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
            model = nn.Sequential(nn.Flatten(), *layers, nn.Linear(512, CLASSES))
        case "transformer":
            model = Transformer()
        case _:
            raise ValueError(name)
    return model


def _with_group_norm(model: nn.Module) -> nn.Module:
    """Replace every BatchNorm by GroupNorm with 8 groups."""
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(model, name, nn.GroupNorm(8, child.num_features))
        else:
            _with_group_norm(child)
    return model


class Transformer(nn.Module):
    """Two encoder layers over sequences of tokens, and the mean over the positions."""

    def __init__(self, size: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, size)
        self.places = nn.Parameter(torch.randn(LENGTH, size) / math.sqrt(size))
        layer = nn.TransformerEncoderLayer(size, 4, 4 * size, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(size, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden: Tensor = self.encoder(self.words(tokens) + self.places)
        scores: Tensor = self.head(hidden.mean(1))
        return scores
