"""The mixed split with the non-i.i.d. ratio NR: Zhu, Shi, Fan, Peng, Letaief, "ISFL: Federated Learning for Non-i.i.d.
Data with Local Importance Sampling", IEEE Internet of Things Journal 2024, and the authors' code, which differs."""

from __future__ import annotations

from typing import Literal, assert_never

from pydantic import Field

from isfl.data.splits.base import Pool, ShardedSplit
from isfl.data.splits.shards import deal
from isfl.errors import UserError
from isfl.sampling import Indices


class MixedSplit(ShardedSplit):
    """Shards of which a part is i.i.d.; `nr` near 1 is severe skew.

    `reading = "text"`: a share `1 - nr` of each shard is i.i.d., as the paper says.
    `reading = "code"`: each client gets `N (1 - nr) / K` i.i.d. samples of the pool's N, as the authors' code does
    (for CIFAR-10 and K = 10: 10 % of a client's 1,000 samples at nr = 0.98).
    """

    kind: Literal["mixed"] = "mixed"
    nr: float = Field(0.98, ge=0, le=1, description="NR, the share that is not i.i.d.")
    reading: Literal["text", "code"] = Field("text", description="of the paper: its text or its code")
    overlap: bool = Field(
        False,
        description="cut the shards from all samples, those of the i.i.d. part included (the authors' code): a client "
        "may then hold a sample twice, and two clients the same one",
    )

    def assign(self, pool: Pool) -> list[Indices]:
        return deal(self, pool, self.iid_per_shard(pool.of), self.overlap)

    def iid_per_shard(self, samples: int) -> int:
        """Return how many samples of each shard are i.i.d. when the training data has this many `samples`."""
        match self.reading:
            case "text":
                each = round((1.0 - self.nr) * self.shard_size)
            case "code":
                each = int(samples * (1.0 - self.nr) / self.clients + 1e-9) // self.shards_per_client
            case _:
                assert_never(self.reading)
        if each > self.shard_size:
            raise UserError(
                f"split.nr = {self.nr} with reading 'code' gives {each * self.shards_per_client} i.i.d. samples per "
                f"client, more than its {self.shards_per_client} shards of {self.shard_size}; raise split.nr"
            )
        return each
