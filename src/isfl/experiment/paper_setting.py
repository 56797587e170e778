"""How the paper's experiments are read and how large they are made: three interpretations, four scales.

`docs/reproducing.md` has the table of what the interpretations differ in, with the evidence for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from isfl.errors import UserError
from isfl.federation.scheme import SHORTHANDS

Scale = Literal["smoke", "quick", "half", "paper"]
SCALES: dict[Scale, str] = {
    "smoke": "tiny runs on the embedded data, not comparable with anything",
    "quick": "half the width and ten rounds",
    "half": "half the width, all rounds",
    "paper": "full width, all rounds",
}
Interpretation = Literal["text", "authors", "published"]
INTERPRETATIONS: dict[Interpretation, str] = {
    "text": "the paper's words to the letter",
    "authors": "the released code to the letter",
    "published": "our hypothesis about how the published numbers were made",
}
Raw = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """One cell of an experiment, before seeds."""

    group: str
    label: str
    config: Raw
    fixed: frozenset[str]
    """Keys of the configuration that group and label stand for: overriding one would make them untrue."""


@dataclass(frozen=True)
class Setting:
    """How an experiment is read and how large it is made."""

    scale: Scale = "quick"
    interpretation: Interpretation = "published"
    clients: int | None = None
    """K, where the experiment does not vary it; None for the interpretation's own."""

    @property
    def by_code(self) -> bool:
        """Whether the released code decides where it differs from the paper's words."""
        return self.interpretation != "text"

    @property
    def table2_clients(self) -> int:
        """The paper names 10 and 20 clients and does not say which table has which."""
        return self.clients or (20 if self.interpretation == "published" else 10)

    def plan(
        self,
        group: str,
        label: str,
        split: Raw,
        scheme: Any,
        *,
        data: str = "cifar10",
        public: int | None = None,
        rounds: int | None = None,
        training: Raw | None = None,
        target: Raw | None = None,
    ) -> Plan:
        """A cell. What is named here is what its group and label stand for; the rest follows from the setting."""
        scheme = {"name": scheme} if isinstance(scheme, str) else scheme
        named = {"split": split, "scheme": scheme, "training": training or {}} | ({"target": target} if target else {})
        fixed = {**named, "data": {"name": data}}
        if public is not None:
            fixed["data"]["public"] = public
        parts = {"sampling.rule", "sampling.solver", "sampling.strength", "objective.kind", "aggregation.rule"}
        parts |= {key for short in SHORTHANDS.values() for key in _keys(short)}  # what tells one name from another
        config = self._base(data, public, rounds)
        config = _merge(config, {**named, "split": self._split(split)})
        if self.by_code:
            config = _merge(config, _by_code(scheme))
        return Plan(group, label, config, frozenset(_keys(fixed)) | {f"scheme.{part}" for part in parts})

    def _base(self, data: str, public: int | None, rounds: int | None) -> Raw:
        """Everything that cells share. What is not named is a default, and the defaults are the paper's.

        The paper names 25 rounds. Its speed-ups for CIFAR-100 are those of 30: by 10, 7 and 6.
        """
        rounds = rounds or (30 if data == "cifar100" else 25)
        public = public or (1000 if self.interpretation == "authors" else 500)
        raw: Raw = {"data": {"name": data, "public": public}, "training": {"rounds": rounds}}
        raw["model"] = {"name": "resnet9" if data == "cifar100" else "resnet8"}
        raw["data"]["public_from"] = "all" if self.by_code else "unused-random"
        if self.by_code:
            raw["training"]["initial_models"] = "independent"
            if data == "cifar100":
                raw["data"]["normalize"] = CIFAR_CHANNELS
        if self.scale == "quick":
            raw["training"]["rounds"] = 10
        if self.scale in ("quick", "half"):
            raw["model"]["width"] = 0.5
        if self.scale == "smoke":
            small = {"name": "fashion-mnist-mini", "public": public // 12, "normalize": None}
            raw["data"] |= small
            raw["model"] = {"name": "mlp", "width": 0.25}
            raw["training"] |= {"rounds": 2, "local_epochs": 1, "batch_size": 32}
        return raw

    def _split(self, split: Raw) -> Raw:
        if self.scale != "smoke":
            return split
        sizes = {
            key: max(2, value // 25) for key, value in split.items() if key in ("shard_size", "samples_per_client")
        }
        return {**split, **sizes}  # a twenty-fifth of the samples

    # ------------------------------------------------------------ splits

    def mixed(self, nr: float, clients: int | None = None, samples: int = 1000) -> Raw:
        """The mixed split, as the text says it or as the released code makes it."""
        split: Raw = {"kind": "mixed", "nr": nr, "clients": clients or self.table2_clients}
        split |= {"shards_per_client": 2, "shard_size": samples // 2, "reading": "text"}
        return split | ({"reading": "code", "overlap": True} if self.by_code else {})

    def mixed_at_constant_skew(self, nr: float, clients: int | None = None, samples: int = 1000) -> Raw:
        """The mixed split with the i.i.d. share that `mixed(nr)` has, whatever the number of clients and samples.

        In the released code that share is `N (1 - NR) / (K |D_k|)`: it would change with what a figure varies.
        """
        split = self.mixed(nr, clients, samples)
        if self.by_code:
            split |= {"reading": "text", "nr": round(1.0 - 50_000 * (1.0 - nr) / (self.table2_clients * 1000), 9)}
        return split

    def dirichlet(self, alpha: float, clients: int | None = None, samples: int = 1000) -> Raw:
        clients = clients or self.table2_clients
        return {"kind": "dirichlet", "alpha": alpha, "clients": clients, "samples_per_client": samples}

    def table2_splits(self) -> dict[str, Raw]:
        return {
            "nr-0.95": self.mixed(0.95),
            "nr-0.98": self.mixed(0.98),
            "dirichlet-0.4": self.dirichlet(0.4),
            "dirichlet-0.2": self.dirichlet(0.2),
        }


CIFAR_CHANNELS = {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2023, 0.1994, 0.2010]}
"""What the released code normalises CIFAR-100 with (they are CIFAR-10's)."""


def _by_code(scheme: Raw) -> Raw:
    """What the released code does and the text does not say, for this scheme."""
    changes: Raw = {"scheme": {"aggregation": {"weights": "client"}}}
    if scheme["name"] == "isfl":
        changes["scheme"]["sampling"] = {"first_round": "target", "reference": "before"}
        changes["training"] = {"drop_last": True}
    return changes


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Raw:
    """`base` with the leaves of `changes` in place of its own."""
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merge(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def _keys(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def setting_named(scale: str, interpretation: str, clients: int | None = None) -> Setting:
    """The setting that the options of `isfl reproduce` name."""
    for option, given, known in (
        ("--scale", scale, get_args(Scale)),
        ("--as", interpretation, get_args(Interpretation)),
    ):
        if given not in known:
            raise UserError(f"{option} {given}: choose one of {', '.join(known)}")
    return Setting(cast(Scale, scale), cast(Interpretation, interpretation), clients)
