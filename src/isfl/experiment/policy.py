"""The comparison of sampling policies by name: rows, settings and steps of the protocol in `docs/policy.md`.

Every step has all rows; `--only` chooses the ones that the protocol asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isfl.experiment.paper import TABLE2_ROWS
from isfl.experiment.paper_setting import Plan, Raw, Setting


def _row(scheme: str, calibrate: bool = False, **sampling: Any) -> Raw:
    """A scheme with these keys of `scheme.sampling`, with or without prior calibration."""
    objective = {"objective": {"calibrate": True}} if calibrate else {}
    return {"name": scheme, "sampling": sampling, **objective}


REFERENCES: dict[str, Any] = {
    "fedavg": "fedavg",
    "uniform-is": "uniform-is",
    "isfl": TABLE2_ROWS["isfl-0.05"],
}
"""Rows to compare with; they are never dropped and never chosen."""

CANDIDATES: dict[str, Raw] = {
    **{f"t-{t}": _row("tempered", temperature=t) for t in (0.25, 0.5, 0.75)},
    **{f"t-{t:g}-cal": _row("tempered", calibrate=True, temperature=t) for t in (0.0, 0.25, 0.5, 0.75, 1.0)},
    "shrunk-50": _row("shrunk", prior_samples=50.0),
    "shrunk-200": _row("shrunk", prior_samples=200.0),
    "shrunk-50-cal": _row("shrunk", calibrate=True, prior_samples=50.0),
    **{f"bv-{weight:g}": _row("bias-variance", weight=weight) for weight in (3.0, 10.0, 30.0)},
    "bv-10-cal": _row("bias-variance", calibrate=True, weight=10.0),
    **{f"cap-{repeats:g}-cal": _row("capped", calibrate=True, repeats=repeats) for repeats in (10.0, 20.0)},
    "cap-run-100-cal": _row("capped", calibrate=True, repeats=100.0, over="run"),
    "decaying": _row("decaying"),
    "decaying-cal": _row("decaying", calibrate=True),
    "isfl-half": _row("isfl", strength=0.5),
    "isfl-half-cal": _row("isfl", calibrate=True, strength=0.5),
    "isfl-opposite": _row("isfl", strength=-0.5),
}

ROWS: dict[str, Any] = {**REFERENCES, **CANDIDATES}


def screen(setting: Setting) -> list[Plan]:
    """All policies on the two settings to choose on, 12 rounds; `scripts/screen_policy.py` halves the rows."""
    return _on_chosen(setting, rounds=12)


def choose(setting: Setting) -> list[Plan]:
    """All policies on the two settings to choose on, 25 rounds."""
    return _on_chosen(setting, rounds=25)


def _on_chosen(setting: Setting, rounds: int) -> list[Plan]:
    splits = {"nr-0.98": setting.mixed(0.98), "dirichlet-0.2": setting.dirichlet(0.2, 10)}
    return [
        _plan(setting, group, row, split, scheme, rounds=rounds)
        for group, split in splits.items()
        for row, scheme in ROWS.items()
    ]


def confirm(setting: Setting) -> list[Plan]:
    """All policies on settings that nothing was chosen on, 12 rounds."""
    severe = setting.mixed(0.98)
    settings: dict[str, tuple[Raw, Raw]] = {
        "nr-0.95": (setting.mixed(0.95), {}),
        "shards": (setting.mixed(1.0), {}),
        "dirichlet-0.4": (setting.dirichlet(0.4, 10), {}),
        "participation-0.2": (severe, {"participation": 0.2}),
        "SR=0.1": (severe, {"sampling_ratio": 0.1}),
        "epochs-1": (severe, {"local_epochs": 1}),
        "K=100": (setting.mixed(0.98, 100, samples=400), {"participation": 0.2}),
    }
    plans = [
        _plan(setting, group, row, split, scheme, rounds=12, training=training)
        for group, (split, training) in settings.items()
        for row, scheme in ROWS.items()
    ]
    return plans + _fashion(setting) + _digits(setting, "digits", setting.dirichlet(0.2, 10, samples=100), rounds=12)


def skew(setting: Setting) -> list[Plan]:
    """All policies on small data from no skew to two classes per client: how the gain grows with the skew."""
    digits: dict[str, Raw] = {
        f"digits-dirichlet-{alpha:g}": setting.dirichlet(alpha, 10, samples=100) for alpha in (100, 1, 0.5, 0.1, 0.05)
    }
    digits["digits-shards"] = setting.mixed(1.0, 10, samples=100) | _OWN_SHARDS
    clothes: dict[str, Raw] = {
        f"clothes-nr-{nr:g}": setting.mixed(nr, 10, samples=500) | _OWN_SHARDS for nr in (0.3, 0.6, 0.9, 1.0)
    }
    clothes |= {f"clothes-dirichlet-{alpha:g}": setting.dirichlet(alpha, 10, samples=500) for alpha in (1, 0.3, 0.1)}
    plans = [plan for group, split in digits.items() for plan in _digits(setting, group, split, rounds=12)]
    return plans + [
        plan
        for group, split in clothes.items()
        for plan in _without_augmentation(setting, group, split, "fashion-mnist-mini", "small-cnn", rounds=6)
    ]


_OWN_SHARDS: Raw = {"reading": "text", "overlap": False}
"""The paper's words: a share 1 - NR of each shard is i.i.d., and no sample belongs to two clients."""


def _fashion(setting: Setting) -> list[Plan]:
    split = setting.mixed(0.95, 20) | _OWN_SHARDS
    return _without_augmentation(setting, "fashion", split, "fashion-mnist", "small-cnn", rounds=12)


def _digits(setting: Setting, group: str, split: Raw, rounds: int) -> list[Plan]:
    plans = _without_augmentation(setting, group, split, "digits", "mlp", rounds)
    for plan in plans:
        plan.config["data"]["public"] = 100
        plan.config["training"]["batch_size"] = 32
    return plans


def _without_augmentation(setting: Setting, group: str, split: Raw, data: str, model: str, rounds: int) -> list[Plan]:
    """A setting that is not CIFAR-10. Crops and flips hurt there."""
    plans = [_plan(setting, group, row, split, scheme, data=data, rounds=rounds) for row, scheme in ROWS.items()]
    for plan in plans:
        plan.config["training"]["augment"] = []
        if setting.scale != "smoke":
            plan.config["model"] = {"name": model}
    return plans


def _plan(setting: Setting, group: str, row: str, split: Raw, scheme: Any, **options: Any) -> Plan:
    """A cell as the paper's experiments have it, with three customs of the field: one first model for all clients,
    clients weighted by their size, crops and flips."""
    plan = setting.plan(group, row, split, scheme, **options)
    plan.config["training"] |= {"initial_models": "shared", "augment": ["crop", "flip"]}
    plan.config["scheme"]["aggregation"] = {"weights": "size"}
    return plan


EXPERIMENTS: dict[str, Callable[[Setting], list[Plan]]] = {
    "policy-screen": screen,
    "policy-choose": choose,
    "policy-confirm": confirm,
    "policy-skew": skew,
}
