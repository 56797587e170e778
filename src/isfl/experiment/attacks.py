"""Hostile clients by name: every attack against every aggregation that should withstand it, for three schemes.

Small enough for a laptop: handwritten digits, ten skewed clients, two of them hostile. The protocol and the results are
in `docs/robustness.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from isfl.experiment.paper_setting import Plan, Setting
from isfl.federation.attacks import ATTACKS

KINDS = tuple(str(attack.model_fields["kind"].default) for attack in ATTACKS)
"""With `none`, for what a defence costs where nobody attacks."""
SCHEMES = ("fedavg", "isfl", "calibrated")
AGGREGATIONS: dict[str, dict[str, Any]] = {
    "mean": {},
    "median": {},
    "trimmed-mean": {"trim": 0.2},
    "clipped": {},
    "multi-krum": {"hostile": 0.2},
    "public-loss": {"hostile": 0.2},
}
"""Those that leave out a share are told the true one."""
JOINED = "+"
"""Between the scheme and the aggregation of a label."""


def attacks(setting: Setting) -> list[Plan]:
    """All attacks by a fifth of the clients, under all schemes and aggregations."""
    own = replace(setting, interpretation="text")  # the paper has no attacks to interpret
    split = own.dirichlet(0.2, setting.clients or 10, samples=100)
    return [_plan(own, split, attack, scheme, rule) for attack in KINDS for scheme in SCHEMES for rule in AGGREGATIONS]


def _plan(setting: Setting, split: dict[str, Any], attack: str, scheme: str, rule: str) -> Plan:
    parts = {"name": scheme, "aggregation": {"rule": rule, **AGGREGATIONS[rule]}}
    plan = setting.plan(attack, f"{scheme}{JOINED}{rule}", split, parts, data="digits")
    plan.config["attack"] = {"kind": attack}
    plan.config["data"]["public"] = 100
    if setting.scale != "smoke":
        plan.config["model"]["name"] = "mlp"
        plan.config["training"] |= {"local_epochs": 2, "batch_size": 50, "evaluate_every": 5}
        plan.config["training"]["optimizer"] = {"kind": "adam", "lr": 0.01}
    return replace(plan, fixed=plan.fixed | {"attack.kind"})


EXPERIMENTS: dict[str, Callable[[Setting], list[Plan]]] = {"attacks": attacks}
