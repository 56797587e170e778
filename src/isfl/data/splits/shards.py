"""Shards: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, Section 3 (their "pathological non-IID" partition of MNIST)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from isfl.data.splits.base import Pool, ShardedSplit
from isfl.errors import UserError
from isfl.sampling import Indices


class ShardSplit(ShardedSplit):
    """Sort the pool by label and cut it into shards; each client gets a few of them at random and nothing else."""

    kind: Literal["shards"] = "shards"

    def assign(self, pool: Pool) -> list[Indices]:
        return deal(self, pool)


def deal(split: ShardedSplit, pool: Pool, iid_per_shard: int = 0, overlap: bool = False) -> list[Indices]:
    """Return the positions of each client's samples.

    Of each shard, `iid_per_shard` samples are drawn at random from the pool first. The rest of the pool is sorted and
    cut. With `overlap`, the whole pool is sorted and cut, so that a sample may be given out twice.
    """
    rng, labels = pool.generator(), pool.labels
    needed, sorted_each = split.clients * split.shards_per_client, split.shard_size - iid_per_shard
    order = rng.permutation(len(labels))
    mixed, rest = order[: needed * iid_per_shard], order if overlap else order[needed * iid_per_shard :]
    by_label = rest[np.argsort(labels[rest], kind="stable")]
    possible = needed if sorted_each == 0 else len(by_label) // sorted_each
    if possible < needed or len(mixed) < needed * iid_per_shard:
        raise UserError(
            f"split asks for {split.clients} clients x {split.shards_per_client} shards of {split.shard_size} = "
            f"{needed * split.shard_size} samples, the data has {len(labels)} beside the public set; "
            "lower split.clients, split.shards_per_client or split.shard_size"
        )
    shards = [
        np.concatenate(
            [
                by_label[position * sorted_each : (position + 1) * sorted_each],
                mixed[i * iid_per_shard : (i + 1) * iid_per_shard],
            ]
        )
        for i, position in enumerate(rng.permutation(possible)[:needed])
    ]
    each = split.shards_per_client
    return [np.concatenate(shards[k * each : (k + 1) * each]) for k in range(split.clients)]
