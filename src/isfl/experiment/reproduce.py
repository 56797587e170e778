"""An experiment of the paper as cells to run, and its numbers next to the published ones."""

from __future__ import annotations

import copy
import fnmatch
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from isfl.errors import UserError
from isfl.experiment.cells import Cell, begin_cells, planned_cells, want_cells
from isfl.experiment.compare import final_numbers, spread
from isfl.experiment.config import apply, config_from
from isfl.experiment.paper import Plan, Setting, plans_of
from isfl.files import PLAN


@dataclass(frozen=True)
class Result:
    """The numbers of one cell over its seeds, in percent, and what was published for it."""

    group: str
    label: str
    seeds: int
    standard: float
    standard_spread: float
    global_: float
    global_spread: float
    top5: float | None
    speedup: float | None
    """All of FedAvg's rounds, by the rounds this scheme took to FedAvg's last accuracy; None if it never got there."""
    extra_gradients: float
    published: dict[str, float]
    """`standard`, `global`, `top5`, `speedup`, as far as the paper tells them."""

    def difference(self, key: str) -> float | None:
        """Ours minus theirs."""
        ours = {"standard": self.standard, "global": self.global_, "top5": self.top5, "speedup": self.speedup}[key]
        return None if ours is None or key not in self.published else ours - self.published[key]


def reproduction_cells(
    name: str, setting: Setting, seeds: Sequence[int], out: Path, only: str | None, overrides: Sequence[str] = ()
) -> list[Cell]:
    """The cells to work on; a directory that holds this experiment already goes on where it stopped."""
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError("--seeds needs at least one number, each once, for instance --seeds 0,1,2")
    every = [
        Cell(
            plan.group,
            plan.label,
            seed,
            config_from({**_overridden(plan, overrides), "seed": seed}, f"{name} {plan.group}/{plan.label}"),
            out / plan.group / plan.label / f"seed-{seed}",
        )
        for plan in plans_of(name, setting)
        for seed in seeds
    ]
    chosen = [cell for cell in every if only is None or _matches(cell, only)]
    if not chosen:
        names = ", ".join(dict.fromkeys(f"{cell.group}/{cell.label}" for cell in every))
        raise UserError(f"--only {only}: matches none of {names}")
    kind = {
        "command": "reproduce",
        "title": name,
        "scale": setting.scale,
        "as": setting.interpretation,
        "clients": setting.clients,
        "set": list(overrides),
    }
    if (out / PLAN).exists():
        plan, planned = planned_cells(out)
        same = all(plan.get(key) == value for key, value in kind.items())
        if not same or [c.config for c in planned] != [c.config for c in every]:
            raise UserError(f"{out}: holds another experiment, setting or seeds; give another --out")
        want_cells(out, chosen)
        return chosen
    begin_cells(every, out, kind, check=chosen)
    return chosen


def _overridden(plan: Plan, overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of a cell with `key=value` overrides, none of which may touch what its name stands for."""
    config = copy.deepcopy(plan.config)
    for override in overrides:
        key = override.partition("=")[0].strip()
        for fixed in sorted(plan.fixed):
            if key == fixed or key.startswith(f"{fixed}.") or fixed.startswith(f"{key}."):
                raise UserError(
                    f"--set {override}: the cell {plan.group}/{plan.label} fixes {fixed}, its name would be untrue; "
                    "use isfl compare for other settings"
                )
        apply(config, override)
    return config


def _matches(cell: Cell, only: str) -> bool:
    """Comma-separated patterns such as `nr-0.98/*`, `*/isfl*` or `nr-0.98/fedavg/seed-1`."""
    name = f"{cell.group}/{cell.label}"
    return any(
        fnmatch.fnmatch(name, pattern.strip()) or fnmatch.fnmatch(f"{name}/seed-{cell.seed}", pattern.strip())
        for pattern in only.split(",")
    )


def results_of(name: str, cells: Sequence[Cell]) -> list[Result]:
    """One result for every group and label that has complete runs."""
    complete = [cell for cell in cells if cell.complete]
    known = published().get(name, {})
    results = []
    for group, label in dict.fromkeys((cell.group, cell.label) for cell in complete):
        runs = [cell.lines for cell in complete if (cell.group, cell.label) == (group, label)]
        top5 = [lines[-1]["accuracy_standard_top5"] for lines in runs if "accuracy_standard_top5" in lines[-1]]
        results.append(
            Result(
                group=group,
                label=label,
                seeds=len(runs),
                top5=spread(top5)[0] if top5 else None,
                speedup=_speedup(complete, group, label),
                published=_published(known.get(group, {}).get(label)),
                **final_numbers(runs),
            )
        )
    return results


def _speedup(cells: Sequence[Cell], group: str, label: str) -> float | None:
    """All of FedAvg's rounds, by the rounds this scheme took to FedAvg's last accuracy; mean over the seeds both have.

    1 for FedAvg itself, None where a seed never gets there. (The published 1.79 and 2.5 are 25/14 and 25/10.)
    """
    if label == "fedavg":
        return 1.0
    runs = {c.seed: c.lines for c in cells if (c.group, c.label) == (group, label)}
    reference = {c.seed: c.lines for c in cells if (c.group, c.label) == (group, "fedavg")}
    ratios = []
    for seed in runs.keys() & reference.keys():
        goal = reference[seed][-1]["accuracy_standard"]
        evaluated = [line for line in runs[seed] if line["accuracy_standard"] is not None]
        reached = [line["round"] for line in evaluated if line["accuracy_standard"] >= goal]
        if not reached:
            return None
        ratios.append(len(reference[seed]) / reached[0])
    return sum(ratios) / len(ratios) if ratios else None


def published() -> dict[str, Any]:
    """The numbers of the paper, with their source."""
    text = resources.files("isfl.experiment").joinpath("presets/published.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def _published(entry: Any) -> dict[str, float]:
    if entry is None:
        return {}
    if isinstance(entry, list):
        return {"standard": entry[0], "global": entry[1]}
    names = {"accuracy": "standard", "top5": "top5", "speedup": "speedup"}
    return {names[key]: value for key, value in entry.items()}
