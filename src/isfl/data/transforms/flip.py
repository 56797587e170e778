"""Random mirroring of images, the usual augmentation for CIFAR: He, Zhang, Ren, Sun, "Deep Residual Learning for Image
Recognition", CVPR 2016, Section 4.2."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from isfl.data.transforms.base import ImageTransform


class Flip(ImageTransform):
    """Mirror an image left to right with a given probability."""

    kind: Literal["flip"] = "flip"
    probability: float = Field(0.5, gt=0, le=1, description="probability that an image is mirrored")

    def apply_to_images(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return flip(images, self.probability, generator)


def flip(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Return (N, C, H, W) images, each mirrored left to right with this probability."""
    chosen = torch.rand(len(images), generator=generator) < probability
    return torch.where(chosen[:, None, None, None], images.flip(3), images)
