"""How the training data is divided among clients: one file per split, with its settings, its function and its citation.

To add a split, write a file with a subclass of `Split` and add its name to `FILES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from isfl.data.public_set import Origin, public_set
from isfl.data.splits.base import Pool, Split
from isfl.sampling import Indices
from isfl.schema import choices_in, default_choice, one_of

FILES = (
    "iid",
    "shards",
    "mixed",
    "dirichlet",
    "feature",
    "flower",
)
SPLITS = choices_in(__name__, FILES, Split)

if TYPE_CHECKING:
    AnySplit = Split
else:
    AnySplit = Annotated[one_of(SPLITS, "kind"), default_choice("kind", "mixed")]


@dataclass(frozen=True)
class Partition:
    """Indices into the training data."""

    clients: tuple[Indices, ...]
    public: Indices


def partition(split: Split, labels: np.ndarray, public: int, seed: int, public_from: Origin = "unused") -> Partition:
    """Choose `public` samples for the public set, then divide the training data among the clients.

    With `public_from = "unused"` no client gets a public sample; with `"all"` clients may get them too.
    """
    chosen = public_set(labels, public, seed, public_from)
    available = np.arange(len(labels))
    if public_from == "unused":
        available = np.setdiff1d(available, chosen)
    clients = split.assign(Pool(labels[available], len(labels), seed))
    return Partition(tuple(available[np.sort(indices)] for indices in clients), chosen)


__all__ = ["SPLITS", "AnySplit", "Partition", "Pool", "Split", "partition"]
