"""Shape and normalisation of inputs, as the configuration asks for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from pydantic import Field, model_validator
from torch import Tensor

from isfl.data.dataset import Dataset, Normalization
from isfl.errors import UserError
from isfl.schema import Part

SMALLEST_STD = 1e-6
"""Dividing by less would overflow single precision."""


class Normalize(Part):
    """Normalise each channel by a mean and a standard deviation; for images, those of pixels between 0 and 1."""

    mean: list[float] = Field(min_length=1, description="one number per channel")
    std: list[float] = Field(min_length=1, description="one positive number per channel")

    @model_validator(mode="after")
    def _same_channels(self) -> Normalize:
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean has {len(self.mean)} numbers and std {len(self.std)}; give one per channel")
        if min(self.std) < SMALLEST_STD:
            raise ValueError(f"std has {min(self.std):g}; deviations are at least {SMALLEST_STD:g}")
        return self


def shaped(data: Dataset, wanted: Sequence[int] | None) -> Dataset:
    """Return the data set with inputs of this shape."""
    if wanted is None:
        return data
    found = tuple(data.inputs.shape[1:])
    if min(wanted) < 1 or math.prod(wanted) != math.prod(found):
        raise UserError(f"data.shape = {list(wanted)}: an input has shape {found}, {math.prod(found)} numbers")
    row, inputs = tuple(wanted), data.inputs
    return replace(data, inputs=inputs.reshape(-1, *row) if isinstance(inputs, Tensor) else inputs.reshaped(row))


def normalized(data: Dataset, wanted: Normalize | None) -> Dataset:
    """Return the data set with this normalisation applied to all batches."""
    if wanted is None:
        return data
    if data.inputs.dtype not in (torch.uint8, torch.float32):
        raise UserError(f"data.normalize: inputs of type {data.inputs.dtype} cannot be normalised; leave it out")
    if data.inputs.shape[1] != len(wanted.mean):
        raise UserError(
            f"data.normalize has {len(wanted.mean)} channels, the data has {data.inputs.shape[1]}; give one number each"
        )
    return replace(data, normalization=Normalization(tuple(wanted.mean), tuple(wanted.std)))
