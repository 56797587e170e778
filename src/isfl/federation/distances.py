"""Norms and distances of clients' updates, in double precision and in an order that no number of threads changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from isfl.federation.values import ClientUpdate, Weights
from isfl.theory.arrays import Array

BLOCK = 16_384
"""Values of every client handled at a time, so that they fit into the processor's cache."""


def update_blocks(updates: Sequence[ClientUpdate], reference: Weights, names: Iterable[str]) -> Iterator[Array]:
    """Yield `theta^k - theta` of all clients in parts of shape (n, at most BLOCK), name by name."""
    for name in sorted(names):
        start, *ends = (value.flatten() for value in (reference[name], *(one.model[name] for one in updates)))
        for first in range(0, len(start), BLOCK):
            block = slice(first, first + BLOCK)
            yield torch.stack([end[block] for end in ends]).double().numpy() - start[block].double().numpy()


def update_norms(updates: Sequence[ClientUpdate], reference: Weights, names: Iterable[str]) -> Array:
    """Return (n,) `||theta^k - theta||` over the values with these names."""
    squares = np.zeros(len(updates))
    for moved in update_blocks(updates, reference, names):
        squares += np.einsum("kn,kn->k", moved, moved)  # einsum alone never shares a sum among threads
    return np.sqrt(squares)


def pairwise_squares(updates: Sequence[ClientUpdate], reference: Weights, names: Iterable[str]) -> Array:
    """Return (n, n) `||theta^k - theta^l||^2` over the values with these names."""
    products = np.zeros((len(updates), len(updates)))
    for moved in update_blocks(updates, reference, names):
        products += np.einsum("kn,ln->kl", moved, moved)
    squares = np.diag(products)
    return np.maximum(squares[:, None] + squares[None, :] - 2.0 * products, 0.0)
