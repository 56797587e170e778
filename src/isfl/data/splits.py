"""How a training pool is shared out: i.i.d., shards, the paper's mixed split in both readings, Dirichlet.

Every split ends, hands each client at least one sample, and says why when a request cannot be met. Samples are
never handed out twice, unless `overlap` asks for what the authors' code does. The public set D_L is set aside
first, so that no client owns any of it, or drawn from everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from isfl.errors import UserError
from isfl.randomness import Purpose, generator
from isfl.sampling import Indices
from isfl.schema import Part, default_choice


class IIDSplit(Part):
    """Every client draws from the whole pool."""

    kind: Literal["iid"] = "iid"
    clients: int = Field(10, ge=1, description="how many there are, K")
    samples_per_client: int = Field(1000, ge=1, description="samples of each, |D_k|")


class _Shards(Part):
    clients: int = Field(10, ge=1, description="how many there are, K")
    shards_per_client: int = Field(2, ge=1, description="shards a client takes")
    shard_size: int = Field(500, ge=1, description="samples of a shard")


class ShardSplit(_Shards):
    """Sorted by label and cut into shards; a client takes a few of them and nothing else."""

    kind: Literal["shards"] = "shards"


class MixedSplit(_Shards):
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


class DirichletSplit(Part):
    """Each class is shared out by proportions drawn from Dirichlet(alpha); client sizes differ."""

    kind: Literal["dirichlet"] = "dirichlet"
    clients: int = Field(10, ge=1, description="how many there are, K")
    alpha: float = Field(0.2, gt=0, le=1e6, description="small is severe skew, large is none")
    samples_per_client: int = Field(1000, ge=1, description="on average: K times as many are drawn from the pool")


class FeatureSplit(Part):
    """Labels i.i.d., but each client's images are rotated, noisy or of another contrast."""

    kind: Literal["feature"] = "feature"
    clients: int = Field(10, ge=1, description="how many there are, K")
    samples_per_client: int = Field(1000, ge=1, description="samples of each, |D_k|")
    lens: Literal["rotation", "noise", "contrast"] = Field("rotation", description="what is done to images")
    strength: float | None = Field(
        None,
        ge=0,
        description="rotation: clients are spread from minus to plus so many degrees (45); contrast: from 1 - strength "
        "to 1 + strength (0.8); noise: from none to this standard deviation, 1 being white against black (0.3)",
    )

    @property
    def reach(self) -> float:
        """The strength given, or the lens's own."""
        return {"rotation": 45.0, "contrast": 0.8, "noise": 0.3}[self.lens] if self.strength is None else self.strength

    @model_validator(mode="after")
    def _within_reason(self) -> FeatureSplit:
        most = 180.0 if self.lens == "rotation" else 1.0
        if self.reach > most:
            raise ValueError(f"strength is {self.reach:g}; for {self.lens} it must not exceed {most:g}")
        return self


class FlowerSplit(Part):
    """Any partitioner of flwr-datasets, with its own options."""

    kind: Literal["flower"] = "flower"
    partitioner: str = Field("DirichletPartitioner", description="class name in flwr_datasets.partitioner")
    options: dict[str, Any] = Field(
        default_factory=dict, description="its arguments; the samples are in columns `label` and `index`"
    )


Split = Annotated[
    Annotated[
        IIDSplit | ShardSplit | MixedSplit | DirichletSplit | FeatureSplit | FlowerSplit, Field(discriminator="kind")
    ],
    default_choice("kind", "mixed"),
]


@dataclass(frozen=True)
class Partition:
    """Indices into the training pool."""

    clients: tuple[Indices, ...]
    public: Indices


def partition(
    split: Split, labels: np.ndarray, public: int, seed: int, public_from: Literal["unused", "all"] = "unused"
) -> Partition:
    """Set the public set aside, then share the rest of the pool out; or share all of it out (`public_from = "all"`)."""
    chosen = public_set(labels, public, seed, public_from)
    every = np.arange(len(labels))
    rest = every if public_from == "all" else np.setdiff1d(every, chosen)
    rng = generator(seed, Purpose.SPLIT)
    if isinstance(split, IIDSplit | FeatureSplit):
        clients = _iid(split, len(rest), rng)
    elif isinstance(split, FlowerSplit):
        from isfl.data.flower import flower_partition  # the one split that needs a library of its own

        clients = flower_partition(split, labels[rest], seed)
    elif isinstance(split, DirichletSplit):
        clients = _dirichlet(split, labels[rest], rng)
    elif isinstance(split, MixedSplit):
        clients = _shards(split, labels[rest], _iid_per_shard(split, len(labels)), rng, split.overlap)
    else:
        clients = _shards(split, labels[rest], 0, rng)
    return Partition(tuple(rest[np.sort(indices)] for indices in clients), chosen)


def public_set(labels: np.ndarray, public: int, seed: int, public_from: Literal["unused", "all"] = "unused") -> Indices:
    """Where in the pool the public set is: balanced over classes, or (from `"all"`) drawn at random."""
    if public >= len(labels):
        raise UserError(f"data.public asks for {public} samples, the data has {len(labels)}; lower data.public")
    rng = generator(seed, Purpose.PUBLIC_SET)
    if public_from == "all":
        return np.sort(rng.choice(len(labels), public, replace=False))
    return _balanced(labels, public, rng)


def _balanced(labels: np.ndarray, count: int, rng: np.random.Generator) -> Indices:
    """`count` samples, of every class the same number as far as they go.

    Balance matters: a Lipschitz value is a maximum over the samples of a class, and more samples have a larger one.
    """
    order = rng.permutation(len(labels))
    turn = np.empty(len(labels), dtype=np.int64)  # 0 for the first sample of each class, 1 for the second, ...
    for label in np.unique(labels):
        members = np.flatnonzero(labels[order] == label)
        turn[members] = np.arange(len(members))
    return np.sort(order[np.argsort(turn, kind="stable")[:count]])


def _iid(split: IIDSplit | FeatureSplit, available: int, rng: np.random.Generator) -> list[Indices]:
    wanted = split.clients * split.samples_per_client
    if wanted > available:
        raise UserError(
            f"split asks for {split.clients} x {split.samples_per_client} = {wanted} samples, the data has "
            f"{available} beside the public set; lower split.clients or split.samples_per_client"
        )
    return np.split(rng.permutation(available)[:wanted], split.clients)


def _iid_per_shard(split: MixedSplit, available: int) -> int:
    if split.reading == "text":
        return round((1.0 - split.nr) * split.shard_size)
    each = int(available * (1.0 - split.nr) / split.clients + 1e-9) // split.shards_per_client
    if each > split.shard_size:
        raise UserError(
            f"split.nr = {split.nr} with reading 'code' gives {each * split.shards_per_client} i.i.d. samples per "
            f"client, more than its {split.shards_per_client} shards of {split.shard_size}; raise split.nr"
        )
    return each


def _shards(
    split: ShardSplit | MixedSplit, labels: np.ndarray, iid_each: int, rng: np.random.Generator, overlap: bool = False
) -> list[Indices]:
    """Set the i.i.d. part aside, sort and cut the rest (`overlap`: all), deal shards at random, each with its i.i.d.
    share."""
    needed, sorted_each = split.clients * split.shards_per_client, split.shard_size - iid_each
    order = rng.permutation(len(labels))
    mixed, rest = order[: needed * iid_each], order if overlap else order[needed * iid_each :]
    by_label = rest[np.argsort(labels[rest], kind="stable")]
    possible = needed if sorted_each == 0 else len(by_label) // sorted_each
    if possible < needed or len(mixed) < needed * iid_each:
        raise UserError(
            f"split asks for {split.clients} clients x {split.shards_per_client} shards of {split.shard_size} = "
            f"{needed * split.shard_size} samples, the data has {len(labels)} beside the public set; "
            "lower split.clients, split.shards_per_client or split.shard_size"
        )
    dealt = rng.permutation(possible)[:needed]
    pieces = [
        np.concatenate(
            [by_label[shard * sorted_each : (shard + 1) * sorted_each], mixed[i * iid_each : (i + 1) * iid_each]]
        )
        for i, shard in enumerate(dealt)
    ]
    each = split.shards_per_client
    return [np.concatenate(pieces[k * each : (k + 1) * each]) for k in range(split.clients)]


def _dirichlet(split: DirichletSplit, labels: np.ndarray, rng: np.random.Generator) -> list[Indices]:
    total = split.clients * split.samples_per_client
    if total > len(labels):
        raise UserError(
            f"split asks for {split.clients} x {split.samples_per_client} = {total} samples, the data has "
            f"{len(labels)} beside the public set; lower split.clients or split.samples_per_client"
        )
    drawn = rng.permutation(len(labels))[:total]  # the pool may be sorted: its first samples may all be of one class
    used = labels[drawn]
    parts: list[list[Indices]] = [[] for _ in range(split.clients)]
    for label in np.unique(used):
        members = rng.permutation(np.flatnonzero(used == label))
        cuts = np.cumsum(rng.dirichlet(np.full(split.clients, split.alpha)))[:-1]
        for k, piece in enumerate(np.split(members, (cuts * len(members)).astype(int))):
            parts[k].append(piece)
    clients = [drawn[np.concatenate(pieces)] for pieces in parts]
    for k in range(split.clients):  # a client that went away empty takes one sample of the richest
        if len(clients[k]) == 0:
            richest = max(range(split.clients), key=lambda other: len(clients[other]))
            clients[k], clients[richest] = clients[richest][:1], clients[richest][1:]
    return clients
