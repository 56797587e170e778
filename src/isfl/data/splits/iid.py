"""Independent and identically distributed clients: the reference without skew."""

from __future__ import annotations

from typing import Literal

import numpy as np

from isfl.data.splits.base import Pool, SizedSplit
from isfl.sampling import Indices


class IIDSplit(SizedSplit):
    """Each client draws at random from the whole pool."""

    kind: Literal["iid"] = "iid"

    def assign(self, pool: Pool) -> list[Indices]:
        return np.split(self.drawn(pool, pool.generator()), self.clients)
