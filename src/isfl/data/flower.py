"""Any partitioner of flwr-datasets as a split, where that library is installed."""

from __future__ import annotations

import inspect

import numpy as np

from isfl.data.splits import FlowerSplit
from isfl.errors import UserError
from isfl.sampling import Indices


def flower_partition(split: FlowerSplit, labels: np.ndarray, seed: int) -> list[Indices]:
    """Hand the labels to the partitioner and take back who got which sample."""
    try:
        import datasets
        from flwr_datasets import partitioner as partitioners
    except ImportError:
        raise UserError("split.kind = 'flower' needs flwr-datasets; pip install 'isfl[flower-datasets]'") from None
    found = getattr(partitioners, split.partitioner, None)
    if found is None:
        known = ", ".join(name for name in dir(partitioners) if name.endswith("Partitioner") and name != "Partitioner")
        raise UserError(f"split.partitioner = {split.partitioner!r}: flwr-datasets has {known}")
    try:
        takes_seed = "seed" in inspect.signature(found).parameters
        partitioner = found(**{**({"seed": seed % 2**31} if takes_seed else {}), **split.options})
        partitioner.dataset = datasets.Dataset.from_dict({"label": labels, "index": np.arange(len(labels))})
        clients = [
            np.asarray(partitioner.load_partition(k)["index"], dtype=np.int64)
            for k in range(partitioner.num_partitions)
        ]
    except Exception as error:  # whatever the library says about its own options, in one line
        raise UserError(
            f"split.partitioner = {split.partitioner!r}: {type(error).__name__}: {error}".splitlines()[0]
        ) from None
    if not clients or min(map(len, clients)) == 0:
        raise UserError(
            f"split.partitioner = {split.partitioner!r}: leaves a client without samples; change split.options"
        )
    return clients
