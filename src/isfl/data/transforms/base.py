"""What a transform offers: its settings, and a random change to a batch of training inputs."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from isfl.errors import UserError
from isfl.schema import Part


class Transform(Part):
    """The base of all transforms."""

    kind: str

    own_code: ClassVar[bool] = False
    """Whether it calls code of the user, which may take global generators."""

    @property
    def label(self) -> str:
        """What errors call it."""
        return self.kind

    @abstractmethod
    def apply(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Return a changed batch of the same shape and type; all randomness comes from `generator`.

        The batch holds inputs as they are stored: (N, C, H, W) bytes for images.
        """


class ImageTransform(Transform):
    """The base of the transforms for images."""

    def apply(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        if batch.dim() != 4:
            raise UserError(
                f"training.augment: {self.kind!r} needs images (channels, height, width), the data has inputs of shape "
                f"{tuple(batch.shape[1:])}"
            )
        return self.apply_to_images(batch, generator)

    @abstractmethod
    def apply_to_images(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return changed images; (N, C, H, W) in and out."""
