"""Helpers for tests of compiled convolutions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from isfl.kernels import library

needs_compiler = pytest.mark.skipif(not library.available(), reason="there is no C compiler")
ROUNDING = 3e-5
"""Tolerated error relative to the largest value: float32 rounding over many additions."""


def close(found: Tensor, expected: Tensor) -> None:
    found, expected = found.detach().double(), expected.detach().double()
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= ROUNDING * float(expected.abs().max())


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
