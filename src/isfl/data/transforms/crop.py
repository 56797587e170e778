"""Random crops of padded images, the usual augmentation for CIFAR: He, Zhang, Ren, Sun, "Deep Residual Learning for
Image Recognition", CVPR 2016, Section 4.2."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from isfl.data.transforms.base import ImageTransform


class Crop(ImageTransform):
    """Pad images with zeros (black, for images of bytes) and cut a window of the old size at a random place."""

    kind: Literal["crop"] = "crop"
    padding: int = Field(4, ge=1, le=1000, description="pixels added on every side before the window is cut")

    def apply_to_images(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return crop(images, self.padding, generator)


def crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Return (N, C, H, W) windows of the padded images, each at its own random place."""
    count, _, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    top, left = torch.randint(2 * padding + 1, (2, count), generator=generator)
    # Every window as a view, without copying: (N, C, H', W', H, W); one per image is then picked.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(count), :, top, left]
