"""The natural partition: the data comes with its clients, for instance one per writer of handwritten digits (Caldas et
al., "LEAF: A Benchmark for Federated Settings", 2018)."""

from __future__ import annotations

from typing import Literal

from isfl.data.splits.base import Pool, Split
from isfl.errors import UserError
from isfl.sampling import Indices


class NaturalSplit(Split):
    """The data comes with one data set per client; it is then the default, and no other split is allowed."""

    kind: Literal["natural"] = "natural"

    def assign(self, pool: Pool) -> list[Indices]:
        raise UserError("split.kind = 'natural': the data does not come with clients; choose another kind of split")
