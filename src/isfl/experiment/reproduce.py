"""An experiment by name as cells to run, and its numbers next to those that the paper published."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isfl import layout
from isfl.errors import UserError
from isfl.experiment import attacks, columns, paper, policy
from isfl.experiment.cells import Cell, begin_cells, planned_cells, want_cells
from isfl.experiment.columns import Lines, spread
from isfl.experiment.paper_setting import Plan, Setting
from isfl.experiment.published import published
from isfl.problem.config import apply, config_from

EXPERIMENTS = {**paper.EXPERIMENTS, **policy.EXPERIMENTS, **attacks.EXPERIMENTS}


@dataclass(frozen=True)
class Best:
    """The round with the highest D_S, chosen on the test set, in percent: an optimistic number.

    The authors' result files are named by the maximum over rounds, so their tables may show it.
    """

    rounds: tuple[int, ...]
    """The best round of each seed."""
    standard: float
    standard_spread: float
    global_: float
    """D_G in that round, not its own maximum."""
    top5: float | None

    @property
    def round(self) -> float:
        """Mean over seeds."""
        return sum(self.rounds) / len(self.rounds)


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
    last_five: tuple[float, float]
    """D_S and D_G, mean over the last five evaluated rounds and over seeds: single rounds swing by some points."""
    lead: tuple[float, float] | None
    """The same minus FedAvg's with the same seed, mean over the seeds both have; None if there are none.

    A seed decides the split, so rows with different seeds are compared by this, not by their own means.
    """
    worst_client: float
    """Accuracy of the last model on the data of the client it serves worst, mean over seeds."""
    best: Best
    rounds_to_fedavg: float | None
    """Rounds to FedAvg's last accuracy, mean over the seeds both have; None if a seed never gets there.

    FedAvg's own are all its rounds, as in the paper, whose FedAvg has a speed-up of 1.
    """
    speedup: float | None
    """All of FedAvg's rounds, divided by the rounds to its last accuracy; mean over seeds as above."""
    extra_gradients: float
    published: dict[str, float]
    """`standard`, `global`, `top5`, `speedup`, as far as the paper has them."""

    def difference(self, key: str, *, best: bool = False) -> float | None:
        """Return our number in the last or in the best round, minus the published one."""
        chosen = self.best if best else self
        values = {"standard": chosen.standard, "global": chosen.global_, "top5": chosen.top5, "speedup": self.speedup}
        ours = values[key]
        return None if ours is None or key not in self.published else ours - self.published[key]


def reproduction_cells(
    name: str, setting: Setting, seeds: Sequence[int], out: Path, only: str | None, overrides: Sequence[str] = ()
) -> list[Cell]:
    """Return the cells to run; a directory that already holds this experiment is resumed."""
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError("--seeds needs at least one number, each once, for instance --seeds 0,1,2")
    every, chosen = _planned(name, setting, seeds, out, only, overrides)
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
    if (out / layout.PLAN).exists():
        plan, planned = planned_cells(out)
        same = all(plan.get(key) == value for key, value in kind.items())
        if not same or [c.config for c in planned] != [c.config for c in every]:
            raise UserError(f"{out}: holds another experiment, setting or seeds; give another --out")
        want_cells(out, chosen)
        return chosen
    begin_cells(every, out, kind, check=chosen)
    return chosen


def plans_of(name: str, setting: Setting) -> list[Plan]:
    """Return the cells of an experiment by name."""
    if name not in EXPERIMENTS:
        raise UserError(f"{name!r} is not an experiment; choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name](setting)


def _planned(
    name: str, setting: Setting, seeds: Sequence[int], out: Path, only: str | None, overrides: Sequence[str]
) -> tuple[list[Cell], list[Cell]]:
    """Return all cells of the experiment, and those that `only` chooses.

    A cell that the overrides do not apply to, such as a key of ISFL's for FedAvg, is an error if it is chosen and
    otherwise not part of the experiment.
    """
    every, chosen = [], []
    for plan in plans_of(name, setting):
        for seed in seeds:
            place = Path(plan.group, plan.label, f"seed-{seed}")
            is_chosen = only is None or _matches(place, only)
            try:
                raw = _overridden(plan, overrides)
                config = config_from({**raw, "seed": seed}, f"{name} {plan.group}/{plan.label}")
            except UserError:
                if is_chosen:
                    raise
                continue
            every.append(Cell(plan.group, plan.label, seed, config, out / place))
            chosen += every[-1:] if is_chosen else []
    return every, chosen


def _overridden(plan: Plan, overrides: Sequence[str]) -> dict[str, Any]:
    """Apply `key=value` overrides to the configuration of a cell; refuse those that its name contradicts."""
    config = copy.deepcopy(plan.config)
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key == "seed":
            raise UserError(f"--set {override}: give --seeds instead")
        for fixed in sorted(plan.fixed):
            if key == fixed or key.startswith(f"{fixed}.") or fixed.startswith(f"{key}."):
                instead = "give --clients instead" if key == "split.clients" else "use isfl compare for other settings"
                raise UserError(
                    f"--set {override}: the cell {plan.group}/{plan.label} fixes {fixed}, its name would be untrue; "
                    + instead
                )
        if isinstance(plan.config.get(key), dict):
            raise UserError(f"--set {override}: {key} is a table; set its keys one by one, such as {key}.KEY=VALUE")
        apply(config, override)
    return config


def _matches(place: Path, only: str) -> bool:
    """Match comma-separated patterns such as `nr-0.98/*`, `*/isfl*` or `nr-0.98/fedavg/seed-1`."""
    patterns = [pattern.strip() for pattern in only.split(",")]
    return any(fnmatch.fnmatch(str(name), pattern) for pattern in patterns for name in (place.parent, place))


def results_of(name: str, cells: Sequence[Cell]) -> list[Result]:
    """Return one result for every group and label that has complete runs."""
    runs: dict[tuple[str, str], dict[int, Lines]] = {}
    for cell in cells:
        if cell.complete:
            runs.setdefault((cell.group, cell.label), {})[cell.seed] = cell.lines
    known = published().rows(name)
    results = []
    for (group, label), by_seed in runs.items():
        lines, fedavg = list(by_seed.values()), runs.get((group, "fedavg"), {})
        rounds, speedup = to_fedavg(label, by_seed, fedavg)
        standard, standard_spread = columns.final_spread(lines, "accuracy_standard")
        global_, global_spread = columns.final_spread(lines, "accuracy_global")
        results.append(
            Result(
                group=group,
                label=label,
                seeds=len(lines),
                standard=standard,
                standard_spread=standard_spread,
                global_=global_,
                global_spread=global_spread,
                top5=_top5([run[-1] for run in lines]),
                last_five=_last_five(lines),
                lead=lead_over(by_seed, fedavg),
                worst_client=columns.final_spread(lines, "worst_client_accuracy")[0],
                best=best_round(lines),
                rounds_to_fedavg=rounds,
                speedup=speedup,
                extra_gradients=columns.extra_gradients(lines),
                published=dict(known.get(group, {}).get(label, {})),
            )
        )
    return results


def lead_over(runs: Mapping[int, Lines], others: Mapping[int, Lines]) -> tuple[float, float] | None:
    """Return the differences of D_S and of D_G over the last five rounds, seed by seed; their means."""
    both = sorted(runs.keys() & others.keys())
    if not both:
        return None
    ours, theirs = (_last_five([every[seed] for seed in both]) for every in (runs, others))
    return ours[0] - theirs[0], ours[1] - theirs[1]


def _last_five(runs: Sequence[Lines]) -> tuple[float, float]:
    return columns.last_five(runs, "accuracy_standard"), columns.last_five(runs, "accuracy_global")


def best_round(runs: Sequence[Lines]) -> Best:
    """Return the numbers of the best round of each seed, over the seeds."""
    best = [columns.best_line(lines) for lines in runs]
    standard, standard_spread = spread([line["accuracy_standard"] for line in best])
    return Best(
        rounds=tuple(line["round"] for line in best),
        standard=standard,
        standard_spread=standard_spread,
        global_=spread([line["accuracy_global"] for line in best])[0],
        top5=_top5(best),
    )


def to_fedavg(label: str, runs: Mapping[int, Lines], fedavg: Mapping[int, Lines]) -> tuple[float | None, float | None]:
    """Return the rounds to the last accuracy of FedAvg with the same seed, and FedAvg's rounds divided by them.

    Both are means over the seeds both have, and None where a seed never gets there. (The published speed-ups 1.79 and
    2.5 are 25/14 and 25/10.)
    """
    rounds, ratios = [], []
    for seed in runs.keys() & fedavg.keys():
        every, goal = len(fedavg[seed]), columns.last(fedavg[seed], "accuracy_standard")
        reached = columns.first_round_with(runs[seed], goal)
        if reached is None:
            return None, None
        rounds.append(every if label == "fedavg" else reached)
        ratios.append(every / rounds[-1])
    return (sum(rounds) / len(rounds), sum(ratios) / len(ratios)) if rounds else (None, None)


def _top5(lines: Lines) -> float | None:
    """Return the mean over seeds; None for ten classes or fewer."""
    values = [line["accuracy_standard_top5"] for line in lines if "accuracy_standard_top5" in line]
    return spread(values)[0] if values else None
