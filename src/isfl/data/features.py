"""Feature skew: the same labels everywhere, but every client sees the world through a lens of its own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from isfl.data.dataset import Dataset
from isfl.data.splits import FeatureSplit
from isfl.errors import UserError
from isfl.randomness import Purpose, generator


def seen_by(client: int, data: Dataset, split: FeatureSplit, seed: int) -> Dataset:
    """The data as this client sees it. Clients are spread evenly from one extreme of the lens to the other."""
    if data.inputs.dtype != torch.uint8 or data.inputs.dim() != 4:
        raise UserError("split.kind = 'feature' needs images of bytes; the data has none")
    place = 0.0 if split.clients == 1 else 2.0 * client / (split.clients - 1) - 1.0  # -1 .. 1
    pixels = data.inputs.float()
    if split.lens == "rotation":
        pixels = _rotated(pixels, place * split.reach)
    elif split.lens == "contrast":
        middle = pixels.mean(dim=(1, 2, 3), keepdim=True)
        pixels = middle + (pixels - middle) * (1.0 + place * split.reach)
    else:
        noise = generator(seed, Purpose.FEATURE_NOISE, client=client).standard_normal(pixels.shape, dtype=np.float32)
        pixels = pixels + 255.0 * split.reach * (place + 1.0) / 2.0 * torch.from_numpy(noise)
    return replace(data, inputs=pixels.round().clamp(0, 255).to(torch.uint8))


def _rotated(images: Tensor, degrees: float) -> Tensor:
    """Around the centre, bilinear; what comes from outside the image repeats its border."""
    angle = math.radians(degrees)
    matrix = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
    grid = F.affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
