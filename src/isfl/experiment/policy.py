"""The comparison of sampling policies by name: rows, settings and steps of the protocol in `docs/policy.md`.

Every step has all of its rows; `--only` chooses the ones that the protocol asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    "decaying": _row("decaying"),
    "decaying-cal": _row("decaying", calibrate=True),
    "isfl-half": _row("isfl", strength=0.5),
    "isfl-half-cal": _row("isfl", calibrate=True, strength=0.5),
    "isfl-opposite": _row("isfl", strength=-0.5),
}

ROWS: dict[str, Any] = {**REFERENCES, **CANDIDATES}

WINNER = "cap-10-cal"
"""The row that the protocol chose."""

PARTS: dict[str, Any] = {
    **{label: ROWS[label] for label in ("fedavg", "t-0-cal", "t-0.5-cal", "cap-10-cal")},
    "cap-10": _row("capped", repeats=10.0),
    "cap-10-cal-drawn": _row("capped", calibrate=True, repeats=10.0, evenly=False),
    **{
        f"cap-10-{kind}": {"name": "capped", "sampling": {"repeats": 10.0}, "objective": {"kind": kind} | calibrated}
        for kind, calibrated in {
            "fedprox": {"calibrate": True},
            "moon": {"calibrate": True},
            "fedntd": {"calibrate": True},
            "fedlc": {},
        }.items()
    },
}
"""Rows of the ablation: parts of `cap-10-cal` switched off, and other objectives on top (FedLC is a calibration of its
own)."""


def screen(setting: Setting) -> list[Plan]:
    """All policies on the settings to choose on, 12 rounds; `scripts/screen_policy.py` halves the rows."""
    return _on(setting, _to_choose_on(setting), rounds=12)


def choose(setting: Setting) -> list[Plan]:
    """All policies on the settings to choose on, 25 rounds."""
    return _on(setting, _to_choose_on(setting), rounds=25)


Changes = tuple[Raw, Raw]
"""A split, and keys of `training`."""


def _to_choose_on(setting: Setting) -> dict[str, Changes]:
    severe = setting.mixed(0.98)
    return {
        "nr-0.98": (severe, {}),
        "dirichlet-0.2": (setting.dirichlet(0.2, 10), {}),
        "SR=0.1": (severe, {"sampling_ratio": 0.1}),
    }


def confirm(setting: Setting) -> list[Plan]:
    """All policies on settings that nothing was chosen on, 12 rounds."""
    severe = setting.mixed(0.98)
    settings: dict[str, Changes] = {
        "nr-0.95": (setting.mixed(0.95), {}),
        "shards": (setting.mixed(1.0), {}),
        "dirichlet-0.4": (setting.dirichlet(0.4, 10), {}),
        "participation-0.2": (severe, {"participation": 0.2}),
        "epochs-1": (severe, {"local_epochs": 1}),
        "K=100": (setting.mixed(0.98, 100, samples=400), {"participation": 0.2}),
    }
    plans = _on(setting, settings, rounds=12)
    return plans + _fashion(setting) + _digits(setting, "digits", setting.dirichlet(0.2, 10, samples=100), rounds=12)


def explain(setting: Setting) -> list[Plan]:
    """The parts of a policy on `dirichlet-0.2` as it is, without augmentation, and with GroupNorm; 12 rounds."""
    split = setting.dirichlet(0.2, 10)
    settings: dict[str, Changes] = {
        "dirichlet-0.2": (split, {}),
        "without-augmentation": (split, {"augment": []}),
        "groupnorm": (split, {"batchnorm": "group"}),
    }
    return _on(setting, settings, rounds=12, rows=PARTS)


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


def _on(setting: Setting, settings: Mapping[str, Changes], rounds: int, rows: Raw = ROWS) -> list[Plan]:
    """Every row on every one of these settings of CIFAR-10."""
    return [
        _plan(setting, group, row, split, scheme, rounds=rounds, training=training)
        for group, (split, training) in settings.items()
        for row, scheme in rows.items()
    ]


def _plan(setting: Setting, group: str, row: str, split: Raw, scheme: Any, **options: Any) -> Plan:
    """A cell as the paper's experiments have it, with three customs of the field: one first model for all clients,
    clients weighted by their size, crops and flips unless the setting says otherwise."""
    plan = setting.plan(group, row, split, scheme, **options)
    customs: Raw = {"initial_models": "shared", "augment": ["crop", "flip"]}
    plan.config["training"] = plan.config["training"] | customs | (options.get("training") or {})
    plan.config["scheme"]["aggregation"] = {"weights": "size"}
    return plan


EXPERIMENTS: dict[str, Callable[[Setting], list[Plan]]] = {
    "policy-screen": screen,
    "policy-choose": choose,
    "policy-confirm": confirm,
    "policy-explain": explain,
    "policy-skew": skew,
}
