"""How the training data is divided among clients: one file per split, with its settings, its function and its citation.

To add a split, write a file with a subclass of `Split` and add its name to `FILES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from isfl.data.dataset import Dataset
from isfl.data.population import Population
from isfl.data.public_set import Origin, public_set
from isfl.data.splits.base import Pool, Split, pool_of, stored
from isfl.errors import UserError
from isfl.sampling import Indices
from isfl.schema import choices_in, default_choice, one_of

FILES = (
    "iid",
    "shards",
    "mixed",
    "dirichlet",
    "feature",
    "virtual",
    "flower",
    "natural",
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


def partition(
    split: Split,
    labels: np.ndarray,
    public: int,
    seed: int,
    public_from: Origin = "unused",
    bounds: np.ndarray | None = None,
    classes: int = 0,
) -> Partition:
    """Choose `public` samples for the public set, then divide the training data among the clients.

    With `public_from = "unused"` no client gets a public sample; with `"all"` clients may get them too. If the data
    comes with clients, they have the rows between `bounds`. `classes` is their number, if it is more than the labels
    show.
    """
    chosen, available = _reserved(labels, public, seed, public_from)
    if bounds is not None:
        return Partition(_between(bounds, available), chosen)
    return Partition(tuple(split.rows(pool_of(labels, available, seed, classes), available)), chosen)


def population(
    split: Split, train: Dataset, public: int, seed: int, public_from: Origin, bounds: np.ndarray | None
) -> tuple[Population, Indices]:
    """Return the clients' data and the positions of the public set, as `partition` divides the training data."""
    chosen, available = _reserved(train.labels.numpy(), public, seed, public_from)
    if bounds is not None:
        return stored(train, _between(bounds, available)), chosen
    return split.population(train, available, seed), chosen


def _reserved(labels: np.ndarray, public: int, seed: int, public_from: Origin) -> tuple[Indices, Indices]:
    """Return the samples of the public set, and those that clients can get."""
    chosen, available = public_set(labels, public, seed, public_from), np.arange(len(labels))
    return chosen, available if public_from == "all" else np.setdiff1d(available, chosen)


def _between(bounds: np.ndarray, available: Indices) -> tuple[Indices, ...]:
    clients = np.split(available, np.searchsorted(available, bounds[1:-1]))
    for number, indices in enumerate(clients):
        if len(indices) == 0:
            raise UserError(
                f"client {number} of the data has no sample beside the public set; lower data.public, set "
                'data.public_from = "all", or leave the client out'
            )
    return tuple(clients)


__all__ = ["SPLITS", "AnySplit", "Partition", "Pool", "Split", "partition", "population"]
