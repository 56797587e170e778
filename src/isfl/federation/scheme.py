"""A scheme is three independent choices: how clients sample, what they minimise, how the server aggregates.

The names of the literature (`fedavg`, `isfl`, `moon`, ...) are shorthands for three such parts, and any part can
be replaced: `scheme = {name = "isfl", objective = {kind = "moon"}}` is ISFL with MOON's objective.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from isfl.federation.aggregations import AGGREGATIONS, AnyAggregation
from isfl.federation.objectives import OBJECTIVES, AnyObjective
from isfl.federation.sampling_rules import RULES, Sampling
from isfl.schema import Part

_DEFAULTS: dict[str, dict[str, Any]] = {
    "sampling": {"rule": "shuffle"},
    "objective": {"kind": "cross-entropy"},
    "aggregation": {"rule": "mean"},
}


def _from_parts() -> dict[str, dict[str, Any]]:
    """Return the names that single rules, objectives and aggregations have in the literature."""
    found: dict[str, dict[str, Any]] = {}
    for part, key, choices in (
        ("sampling", "rule", RULES),
        ("objective", "kind", OBJECTIVES),
        ("aggregation", "rule", AGGREGATIONS),
    ):
        for choice in choices:
            kind = choice.model_fields[key].default
            for name, settings in choice.names.items():
                plain = kind == _DEFAULTS[part][key] and not settings
                found[name] = {} if plain else {part: {key: kind, **settings}}
    return found


SHORTHANDS: dict[str, dict[str, Any]] = {
    **_from_parts(),
    "calibrated": {"sampling": {"rule": "tempered", "temperature": 0.5}, "objective": {"calibrate": True}},
    "adaptive": {"sampling": {"rule": "capped"}, "objective": {"calibrate": True}},
    "centralized": {"pooled": True},
}
"""The parts behind each name; parts that are not listed are FedAvg's."""

_SHARED = frozenset({"calibrate", "weights"})
"""Settings that every kind has and a change of kind keeps: `calibrated` with FedProx stays calibrated."""


class Scheme(Part):
    """Sampling x objective x aggregation, under a name."""

    name: str = Field("fedavg", description="a shorthand, whose parts hold where none is given")
    sampling: Sampling
    objective: AnyObjective
    aggregation: AnyAggregation
    pooled: bool = Field(False, description="one client that holds all clients' data: the centralised reference")

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, given: Any) -> Any:
        """Fill the parts in from the shorthand, then let the given ones override them key by key."""
        if isinstance(given, str):
            given = {"name": given}
        if not isinstance(given, dict):
            return given
        name = given.get("name", "fedavg")
        if not isinstance(name, str) or name not in SHORTHANDS:
            raise ValueError(f"unknown scheme {name!r}; choose one of {', '.join(SHORTHANDS)}")
        short = SHORTHANDS[name]
        result: dict[str, Any] = {"pooled": short.get("pooled", False), **given, "name": name}
        for part, default in _DEFAULTS.items():
            base = {**default, **short.get(part, {})}
            override = given.get(part, {})
            if isinstance(override, dict):
                choice = next(iter(default))  # the key that selects the kind
                if choice in override and override[choice] != base[choice]:
                    base = {key: base[key] for key in base.keys() & _SHARED}
                result[part] = {**base, **override}
        return result
