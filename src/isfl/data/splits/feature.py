"""Feature skew: the labels are i.i.d., but each client's images are rotated, noisy or of another contrast.

Noise that grows from client to client follows Li, Diao, Chen, He, "Federated Learning on Non-IID Data Silos: An
Experimental Study", ICDE 2022.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, assert_never

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from isfl.data.dataset import Dataset
from isfl.data.population import StoredPopulation
from isfl.data.splits.base import Pool, SizedSplit
from isfl.errors import UserError
from isfl.randomness import Purpose, generator
from isfl.sampling import Indices

DEFAULT_STRENGTH = {"rotation": 45.0, "contrast": 0.8, "noise": 0.3}
LARGEST_STRENGTH = {"rotation": 180.0, "contrast": 1.0, "noise": 1.0}


class FeatureSplit(SizedSplit):
    """Labels i.i.d., but each client's images are rotated, noisy or of another contrast."""

    kind: Literal["feature"] = "feature"
    lens: Literal["rotation", "noise", "contrast"] = Field("rotation", description="the change to the images")
    strength: float | None = Field(
        None,
        ge=0,
        description="the extreme of the range over which clients are spread evenly. rotation: from minus to plus this "
        "many degrees (45); contrast: from 1 - strength to 1 + strength (0.8); noise: from none to this standard "
        "deviation, where 1 is white against black (0.3)",
    )

    @property
    def strength_or_default(self) -> float:
        return DEFAULT_STRENGTH[self.lens] if self.strength is None else self.strength

    @model_validator(mode="after")
    def _strength_fits_the_lens(self) -> FeatureSplit:
        largest = LARGEST_STRENGTH[self.lens]
        if self.strength_or_default > largest:
            raise ValueError(f"strength is {self.strength:g}; for {self.lens} it must not exceed {largest:g}")
        return self

    def assign(self, pool: Pool) -> list[Indices]:
        return np.split(self.drawn(pool, pool.generator()), self.clients)

    def transformed(self, clients: StoredPopulation, seed: int) -> StoredPopulation:
        return StoredPopulation.of([seen_by(k, data, self, seed) for k, data in enumerate(clients)])


def seen_by(client: int, data: Dataset, split: FeatureSplit, seed: int) -> Dataset:
    """Return the data as this client sees it; clients are spread evenly from one extreme of the lens to the other."""
    if data.inputs.dtype != torch.uint8 or len(data.inputs.shape) != 4:
        raise UserError("split.kind = 'feature' needs images of bytes; the data has none")
    place = 0.0 if split.clients == 1 else 2.0 * client / (split.clients - 1) - 1.0  # -1 .. 1
    pixels, strength = data.stored().float(), split.strength_or_default
    match split.lens:
        case "rotation":
            pixels = _rotated(pixels, place * strength)
        case "contrast":
            middle = pixels.mean(dim=(1, 2, 3), keepdim=True)
            pixels = middle + (pixels - middle) * (1.0 + place * strength)
        case "noise":
            rng = generator(seed, Purpose.FEATURE_NOISE, client=client)
            noise = torch.from_numpy(rng.standard_normal(pixels.shape, dtype=np.float32))
            pixels = pixels + 255.0 * strength * (place + 1.0) / 2.0 * noise
        case _:
            assert_never(split.lens)
    return replace(data, inputs=pixels.round().clamp(0, 255).to(torch.uint8))


def _rotated(images: Tensor, degrees: float) -> Tensor:
    """Rotate images about their centre, bilinearly; what lies outside an image repeats its border."""
    angle = math.radians(degrees)
    matrix = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
    grid = F.affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
