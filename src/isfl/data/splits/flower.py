"""Any partitioner of flwr-datasets as a split. The library is optional and imported when a split is made."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import numpy as np
from pydantic import Field

from isfl.data.splits.base import Pool, Split
from isfl.errors import UserError
from isfl.sampling import Indices


class FlowerSplit(Split):
    """Any partitioner of flwr-datasets, with its own options."""

    kind: Literal["flower"] = "flower"
    partitioner: str = Field("DirichletPartitioner", description="class name in flwr_datasets.partitioner")
    options: dict[str, Any] = Field(
        default_factory=dict, description="its arguments; the samples are in columns `label` and `index`"
    )

    def assign(self, pool: Pool) -> list[Indices]:
        key = f"split.partitioner = {self.partitioner!r}"
        try:
            clients = _assigned(_partitioner_class(self.partitioner, key), self.options, pool)
        except UserError:
            raise
        except Exception as error:  # the library reports bad options by exceptions of many types
            raise UserError(f"{key}: {type(error).__name__}: {error}".splitlines()[0]) from None
        if not clients or min(map(len, clients)) == 0:
            raise UserError(f"{key}: leaves a client without samples; change split.options")
        return clients


def _partitioner_class(name: str, key: str) -> Any:
    try:
        from flwr_datasets import partitioner as partitioners
    except ImportError:
        raise UserError("split.kind = 'flower' needs flwr-datasets; pip install 'isfl[flower-datasets]'") from None
    found = getattr(partitioners, name, None)
    if found is None:
        known = ", ".join(item for item in dir(partitioners) if item.endswith("Partitioner") and item != "Partitioner")
        raise UserError(f"{key}: flwr-datasets has {known}")
    return found


def _assigned(partitioner_class: Any, options: dict[str, Any], pool: Pool) -> list[Indices]:
    """Give the labels to the partitioner and return the positions it assigns to each client."""
    import datasets

    takes_seed = "seed" in inspect.signature(partitioner_class).parameters
    partitioner = partitioner_class(**{**({"seed": pool.seed % 2**31} if takes_seed else {}), **options})
    partitioner.dataset = datasets.Dataset.from_dict({"label": pool.labels, "index": np.arange(len(pool.labels))})
    return [
        np.asarray(partitioner.load_partition(k)["index"], dtype=np.int64) for k in range(partitioner.num_partitions)
    ]
