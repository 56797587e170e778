"""Tables and the figure of `isfl reproduce attacks`: accuracy under attack, by scheme and aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.figure import Figure

from isfl.experiment import columns
from isfl.experiment.attacks import AGGREGATIONS, JOINED, KINDS, SCHEMES
from isfl.experiment.cells import Cell
from isfl.federation.settings import Settings
from isfl.plotting import PAGE, legend_below, sheet, styles_of, tidy
from isfl.report.pictures import NotDrawnError
from isfl.report.reading import FoundRun, by_group
from isfl.report.table import markdown_table, not_made
from isfl.theory.arrays import Array


class Numbers(Protocol):
    """The numbers of one cell over its seeds, in percent."""

    @property
    def group(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def seeds(self) -> int: ...
    @property
    def standard(self) -> float: ...
    @property
    def standard_spread(self) -> float: ...


def markdown(plan: Mapping[str, Any], cells: Sequence[Cell], results: Sequence[Numbers], notes: Sequence[str]) -> str:
    """Return one table per scheme: a row per aggregation, a column per attack."""
    parts = [f"# {plan['title']}"]
    made = {(r.group, *r.label.split(JOINED)): r for r in results}
    for scheme in SCHEMES:
        rows = [
            (
                rule,
                *(_number(made[attack, scheme, rule]) if (attack, scheme, rule) in made else "-" for attack in KINDS),
            )
            for rule in AGGREGATIONS
            if any((attack, scheme, rule) in made for attack in KINDS)
        ]
        if rows:
            parts += [f"## {scheme}", markdown_table(("aggregation", *KINDS), rows)]
    seeds = max((r.seeds for r in results), default=1)
    parts.append(
        "Accuracy on D_S, the balanced test set, in the last round, in %; columns are attacks"
        + (f"; mean ± standard deviation of up to {seeds} seeds." if seeds > 1 else "; one seed.")
        + not_made(cells)
    )
    return "\n\n".join([*parts, *notes]) + "\n"


def _number(result: Numbers) -> str:
    spread = f" ± {result.standard_spread:.0f}" if result.seeds > 1 else ""
    return f"{result.standard:.0f}{spread}"


def under_attack(runs: Sequence[FoundRun]) -> Figure:
    """Draw accuracy in the last round: one panel per attack, one place per aggregation, one mark per scheme."""
    groups = by_group([run for run in runs if run.evaluated])
    if not groups:
        raise NotDrawnError("no run has been evaluated")
    styles = styles_of(SCHEMES)
    wide = min(3, len(groups))
    figure, axes = sheet(
        -(-len(groups) // wide), wide, PAGE, 0.9 + 2.1 * -(-len(groups) // wide), sharex=True, sharey=True
    )
    for axis, (attack, labelled) in zip(axes.flat, groups.items(), strict=False):
        for i, scheme in enumerate(SCHEMES):
            known = [k for k, rule in enumerate(AGGREGATIONS) if f"{scheme}{JOINED}{rule}" in labelled]
            last = [_last(labelled[f"{scheme}{JOINED}{list(AGGREGATIONS)[k]}"]) for k in known]
            means = np.array([own.mean() for own in last])
            reach = np.array([[mean - own.min(), own.max() - mean] for mean, own in zip(means, last, strict=True)])
            style = {**styles[scheme], "linestyle": "none"}
            places = np.array(known) + 0.22 * (i - 1)
            axis.errorbar(places, means, reach.reshape(-1, 2).T, label=scheme, capsize=1.5, elinewidth=0.8, **style)
        axis.set_xticks(range(len(AGGREGATIONS)), AGGREGATIONS, rotation=40, ha="right")
        axis.set_ylim(0, 100)
        tidy(axis, "no attack" if attack == "none" else attack, "", "")
    for axis in axes[:, 0]:
        axis.set_ylabel("accuracy on $D_S$ in %")
    for axis in axes.flat[len(groups) :]:
        axis.remove()
    legend_below(figure, "last round: mean and range over seeds")
    return figure


def _last(runs: Sequence[FoundRun]) -> Array:
    return np.array([100 * columns.last(run.lines, "accuracy_standard") for run in runs])


def about_left_out(runs: Sequence[FoundRun]) -> list[str]:
    """Return a table of the shares of hostile and of honest updates that aggregations left out."""
    found: dict[str, dict[str, str]] = {}
    for attack, labelled in by_group(runs).items():
        for rule in AGGREGATIONS:
            own = [run for label, same in labelled.items() if label.endswith(f"{JOINED}{rule}") for run in same]
            hostile, honest = (np.array([x for run in own for x in _left_out(run, which)]) for which in (True, False))
            if len(honest) and (hostile.sum() + honest.sum()):
                seen = f"{100 * hostile.mean():.0f} / " if len(hostile) else ""
                found.setdefault(rule, {})[attack] = f"{seen}{100 * honest.mean():.0f}"
    if not found:
        return []
    table = markdown_table(
        ("left out by", *KINDS), [(rule, *(row.get(attack, "-") for attack in KINDS)) for rule, row in found.items()]
    )
    return [
        "## What was left out",
        table,
        "Share of the hostile / of the honest updates that the aggregation left out, over all rounds, schemes and "
        "seeds, in %.",
        "## What looking at updates cost",
        _cost_table(runs),
        "Of the server, in % of the clients' training, over all runs. A forward pass of the public set counts as a "
        "third of a gradient evaluation; seconds contain the averaging.",
    ]


def _cost_table(runs: Sequence[FoundRun]) -> str:
    rows = []
    for rule in AGGREGATIONS:
        own = [run.lines for run in runs if run.short_label.endswith(f"{JOINED}{rule}")]
        spent = [sum(map(measure, own)) for measure in (columns.screened, columns.trained)]
        seconds = [sum(columns.total(lines, f"seconds.{part}") for lines in own) for part in PARTS]
        if own:
            rows.append((rule, f"{100 * spent[0] / spent[1]:.0f}", f"{100 * seconds[0] / seconds[1]:.0f}"))
    return markdown_table(("aggregation", "gradient evaluations %", "seconds %"), rows)


PARTS = ("aggregation", "training")


def _left_out(run: FoundRun, hostile: bool) -> list[bool]:
    """Return for every update of hostile or of honest clients whether it was left out."""
    settings = Settings.model_validate({key: run.config[key] for key in ("seed", "attack") if key in run.config})
    return [
        str(client) in line["refused"]
        for line in run.lines
        for client in line["participants"]
        if client not in line.get("late", ()) and settings.attack.is_hostile(settings.seed, client) == hostile
    ]
