"""The public set `D_L`: samples at the server on which Lipschitz values are estimated."""

from __future__ import annotations

from typing import Literal, assert_never

import numpy as np

from isfl.errors import UserError
from isfl.randomness import Purpose, generator
from isfl.sampling import Indices

Origin = Literal["unused", "unused-random", "all"]
"""Where public samples come from: set aside before clients get theirs, balanced or at random, or all training data."""


def public_set(labels: np.ndarray, public: int, seed: int, public_from: Origin = "unused") -> Indices:
    """Return the positions of `public` samples: balanced over classes (`"unused"`), or drawn at random."""
    if public >= len(labels):
        raise UserError(f"data.public asks for {public} samples, the data has {len(labels)}; lower data.public")
    rng = generator(seed, Purpose.PUBLIC_SET)
    match public_from:
        case "unused":
            return _balanced(labels, public, rng)
        case "unused-random" | "all":
            return np.sort(rng.choice(len(labels), public, replace=False))
        case _:
            assert_never(public_from)


def _balanced(labels: np.ndarray, count: int, rng: np.random.Generator) -> Indices:
    """Return `count` positions, equally many of each class while it has samples left.

    Balance matters: a Lipschitz value is a maximum over the samples of a class, and more samples have a larger one.
    """
    order = rng.permutation(len(labels))
    rank = np.empty(len(labels), dtype=np.int64)  # 0 for the first sample of each class, 1 for the second, ...
    for label in np.unique(labels):
        members = np.flatnonzero(labels[order] == label)
        rank[members] = np.arange(len(members))
    return np.sort(order[np.argsort(rank, kind="stable")[:count]])
