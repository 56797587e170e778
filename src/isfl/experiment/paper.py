"""The paper's experiments by name: what is run in each cell.

An experiment is a list of plans: a group (a column of a table, a setting of a figure), a label (a row, a scheme) and a
configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isfl.errors import UserError
from isfl.experiment.paper_setting import Plan, Raw, Setting

TABLE2_ROWS: dict[str, Any] = {
    "fedavg": "fedavg",
    "uniform-is": "uniform-is",
    "pj-is": "pj-is",
    "pj-unnormalised": "pj-unnormalised",
    "isfedavg": "isfedavg",
    "isfl-0.05": {"name": "isfl", "sampling": {"floor": 0.05}},
    "isfl-0.01": {"name": "isfl", "sampling": {"floor": 0.01}},
    "centralized": "centralized",
    "tempered": "tempered",
    "calibrated": "calibrated",
    "adaptive": "adaptive",
    "isfl-calibrated": {"name": "isfl", "objective": {"calibrate": True}},
}
"""The paper's six rows, another reading of `p_j`-IS, the centralised reference, and four rows of ours."""

# ---------------------------------------------------------------- the experiments


def table2(setting: Setting) -> list[Plan]:
    """Accuracy of every sampling scheme under four label skews (compare_tab)."""
    return [
        setting.plan(column, row, split, scheme)
        for column, split in setting.table2_splits().items()
        for row, scheme in TABLE2_ROWS.items()
    ]


def table3(setting: Setting) -> list[Plan]:
    """ISFL against schemes that change the objective (cross_tab, fig-compare-cross), with the speed-up in rounds.

    With 10 clients the released code shares all of CIFAR-100 out; where the public set must be of unused samples, 500
    are left.
    """
    clients = setting.clients or 10
    samples = min(5000, (50_000 if setting.by_code else 49_500) // clients)
    columns: dict[str, tuple[Raw, float, float]] = {
        "cifar10": (setting.dirichlet(0.2, clients), 0.2, 0.5),
        "cifar100": (setting.dirichlet(0.5, clients, samples), 0.01, 0.2),
    }
    plans = []
    for data, (split, mu, tau) in columns.items():
        moon: Raw = {"mu": 1.0, "tau": tau}
        if setting.by_code and data == "cifar100":
            moon["representation"] = "logits"
        rows: dict[str, Any] = {
            "fedavg": "fedavg",
            "fedprox": {"name": "fedprox", "objective": {"mu": mu}},
            "moon": {"name": "moon", "objective": moon},
            "isfl": "isfl",
        }
        plans += [setting.plan(data, row, split, scheme, data=data) for row, scheme in rows.items()]
    return plans


def centralized(setting: Setting) -> list[Plan]:
    """One model trained on all 50,000 images: the reference that Section V-A names."""
    if setting.clients not in (None, 1):
        raise UserError(f"--clients {setting.clients}: the centralised reference has no clients to vary")
    plans = []
    for data in ("cifar10", "cifar100"):
        split: Raw = {"kind": "iid", "clients": 1, "samples_per_client": 50_000}
        plan = setting.plan(data, "centralized", split, "fedavg", data=data)
        plan.config["data"]["public_from"] = "all"  # nothing is left aside
        plans.append(plan)
    return plans


def convergence(setting: Setting) -> list[Plan]:
    """Accuracy and training loss over rounds, under light and severe skew (fig-compare)."""
    rows, splits = ("fedavg", "uniform-is", "isfedavg", "isfl-0.05"), setting.table2_splits()
    return [
        setting.plan(column, row, splits[column], TABLE2_ROWS[row])
        for column in ("dirichlet-0.4", "nr-0.98")
        for row in rows
    ]


def rho(setting: Setting) -> list[Plan]:
    """`rho` in use against its theoretical minimum, over rounds (fig-thm-val)."""
    return [setting.plan("nr-0.98", "isfl-0.05", setting.mixed(0.98), TABLE2_ROWS["isfl-0.05"])]


def probabilities(setting: Setting) -> list[Plan]:
    """`q` over rounds on selected clients, under ISFedAvg and ISFL (fig-q)."""
    rows = ("isfedavg", "isfl-0.05")
    return [setting.plan("nr-0.98", row, setting.mixed(0.98), TABLE2_ROWS[row]) for row in rows]


def cost(setting: Setting) -> list[Plan]:
    """Accuracy and extra gradients against the number of clients, their data and the public set (fig-cmplx)."""
    split = setting.mixed_at_constant_skew
    numbers = sorted({5, 10, 20, setting.table2_clients})  # with the one that the other settings share
    settings = {
        **{f"K={k}": (split(0.98, clients=k), 500) for k in numbers},
        **{f"Dk={n}": (split(0.98, samples=n), 500) for n in (500, 2000)},
        **{f"DL={n}": (split(0.98), n) for n in (250, 1000)},
    }
    return [
        setting.plan(name, row, split, TABLE2_ROWS[row], public=public)
        for name, (split, public) in settings.items()
        for row in ("isfedavg", "isfl-0.05")
    ]


def sampling_ratio(setting: Setting) -> list[Plan]:
    """Accuracy against the share of local data drawn an epoch (fig-sr); RW-IS is Uniform-IS."""
    return [
        setting.plan(f"SR={ratio}", row, setting.mixed(0.98), TABLE2_ROWS[row], training={"sampling_ratio": ratio})
        for ratio in (0.1, 0.3, 0.5, 1.0)
        for row in ("fedavg", "uniform-is", "isfl-0.05")
    ]


def personalisation(setting: Setting) -> list[Plan]:
    """D_S and every client's own accuracy as the target moves from the global to the local mix (Section V-B's remark).

    The paper proposes it and shows no numbers.
    """
    return [
        setting.plan(
            f"local={weight:g}",
            row,
            setting.mixed(0.98),
            TABLE2_ROWS[row],
            target={"kind": "local", "weight": weight},
        )
        for weight in (0.0, 0.25, 0.5, 0.75, 1.0)
        for row in ("pj-is", "isfl-0.05")
    ]


EXPERIMENTS: dict[str, Callable[[Setting], list[Plan]]] = {
    "table2": table2,
    "table3": table3,
    "centralized": centralized,
    "fig-convergence": convergence,
    "fig-cross": table3,
    "fig-rho": rho,
    "fig-q": probabilities,
    "fig-cost": cost,
    "fig-sr": sampling_ratio,
    "fig-personal": personalisation,
}
