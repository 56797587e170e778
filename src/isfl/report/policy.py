"""Tables and the picture of the comparison of sampling policies (`docs/policy.md`), step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from isfl.experiment import columns
from isfl.experiment.cells import Cell
from isfl.experiment.columns import Lines
from isfl.experiment.compare import summarise
from isfl.experiment.policy import REFERENCES, WINNER
from isfl.experiment.screen import MARGIN, STAGES, WINDOW, Stage, accuracies, completed, score
from isfl.experiment.standings import REFERENCE, Standing, gains, standings, winner
from isfl.plotting import COLOURS, PAGE, legend_below, sheet, tidy
from isfl.report.gains import BEHIND, GAINS, behind_table, gains_table
from isfl.report.pictures import NotDrawnError
from isfl.report.reading import FoundRun, by_group
from isfl.report.table import (
    Table,
    accuracy_caption,
    accuracy_table,
    cost_caption,
    cost_table,
    difference,
    markdown_table,
    not_made,
)

GOAL = 1.0
"""Rows are asked how soon they reach the last accuracy of FedAvg."""


def markdown(plan: Mapping[str, Any], cells: Sequence[Cell], results: Sequence[Any], notes: Sequence[str]) -> str:
    """Return what all settings say together, and two tables per setting.

    Where the protocol chooses, that is the standing of every policy and its choice; elsewhere, the gains over FedAvg.
    """
    parts = [f"# {plan['title']}"]
    if plan["title"] == "policy-choose":
        parts += _choice(cells)
    elif measured := gains(cells):
        parts += ["## All settings", markdown_table(*gains_table(cells, measured)), GAINS]
        if plan["title"] == "policy-confirm" and WINNER in measured:
            parts += [markdown_table(*behind_table(cells, WINNER)), BEHIND.format(winner=WINNER)]
    if plan["title"] in ("policy-skew", "policy-explain"):  # what they say is their gains
        return "\n\n".join([*parts, *notes]) + "\n"
    for group in dict.fromkeys(result.group for result in results):
        own = [cell for cell in cells if cell.group == group and cell.complete]
        own.sort(key=lambda cell: cell.label != REFERENCE)  # the one to compare with comes first
        table = summarise(own, GOAL)
        parts += [f"## {group}", markdown_table(*accuracy_table(table)), accuracy_caption(table)]
        parts += [markdown_table(*cost_table(table)), cost_caption(table, GOAL)]
    return "\n\n".join([*parts, *notes]) + "\n"


def _choice(cells: Sequence[Cell]) -> list[str]:
    rows = standings(cells)
    if not rows:
        return []
    best = winner(rows)
    told = [] if best is None else [f"The protocol's rule chooses `{best.label}` from these rows."]
    return ["## All settings", markdown_table(*standings_table(rows)), STANDINGS + not_made(cells), *told]


def standings_table(rows: Sequence[Standing]) -> Table:
    """Return one row per policy, the best first."""
    settings = list(rows[0].by_setting)
    headings = ("policy", "score", *settings, "against FedAvg", "against the best", "extra %", "kB")
    return headings, [
        (
            row.label,
            f"{row.score:.1f}",
            *(f"{row.by_setting[setting]:.1f}" for setting in settings),
            difference(row.against_fedavg),
            difference(row.against_best),
            f"{row.extra_gradients:.1f}",
            f"{row.kilobytes:,.0f}",
        )
        for row in rows
    ]


STANDINGS = (
    "Score: mean of D_S and D_G in % over the last five rounds, over seeds and settings; against: differences in "
    "points, seed by seed, with a 95 % interval and the seeds that agree in sign; the best: the candidate with the "
    "highest score; extra: gradients for sampling per gradient for training; kB: sent up and down per participant and "
    "round."
)


# ---------------------------------------------------------------- the screen


def screen_markdown(
    plan: Mapping[str, Any], cells: Sequence[Cell], results: Sequence[Any], notes: Sequence[str]
) -> str:
    """Return one row per policy, those that came furthest first, with its scores and where it was dropped."""
    stages = completed(cells)
    parts = [f"# {plan['title']}"]
    parts += [markdown_table(*screen_table(cells, stages)), SCREEN] if stages else [*_begun(cells), *_whole(cells)]
    return "\n\n".join([*parts, *notes]) + "\n"


def _begun(cells: Sequence[Cell]) -> list[str]:
    """Return the runs that are at the end of the first stage, the best of each setting first, while others lack."""
    first = STAGES[0]
    shown = [cell for cell in cells if len(cell.lines) >= first]
    groups = list(dict.fromkeys(cell.group for cell in cells))
    shown.sort(key=lambda cell: (groups.index(cell.group), -score(cell.lines, first)))
    rows = [
        (cell.group, _name(cell.label), f"{score(cell.lines, first):.1f}", _on_setting(cell.lines[:first]))
        for cell in shown
    ]
    return [
        f"The first stage is not complete: {len(shown)} of {len(cells)} runs have {first} rounds.",
        *([markdown_table(("setting", "policy", f"after {first}", "D_S / D_G (worst)"), rows)] if rows else []),
    ]


def _whole(cells: Sequence[Cell]) -> list[str]:
    """Return the runs that have all their rounds, while the first stage is not complete."""
    settings = list(dict.fromkeys(cell.group for cell in cells))
    runs = {(cell.label, cell.group): cell.lines for cell in cells if cell.complete}
    own = {label: [runs.get((label, at)) for at in settings] for label in dict.fromkeys(label for label, _ in runs)}
    scores = {label: [score(lines, len(lines)) if lines else np.nan for lines in every] for label, every in own.items()}
    means = {label: float(np.mean(every)) for label, every in scores.items()}
    rows = [
        (
            _name(label),
            *("-" if lines is None else _on_setting(lines) for lines in own[label]),
            "-" if np.isnan(means[label]) else f"{means[label]:.1f}",
            f"{columns.extra_gradients([lines for lines in own[label] if lines]):.1f}",
        )
        for label in sorted(own, key=lambda label: -np.nan_to_num(means[label], nan=-1.0))
    ]
    headings = ("policy", *(f"{at}: D_S / D_G (worst)" for at in settings), "score", "extra %")
    return [WHOLE, markdown_table(headings, rows)] if rows else []


WHOLE = (
    f"Runs with all their rounds: D_S / D_G in % over the last {WINDOW}, and the worst client on its own data; score: "
    "mean of D_S and D_G over the settings; extra: gradients for sampling per gradient for training."
)


def _name(label: str) -> str:
    return f"{label} (reference)" if label in REFERENCES else label


def _on_setting(lines: Lines) -> str:
    """Return D_S and D_G over the last of these rounds, and the worst client's accuracy after them."""
    both = " / ".join(f"{value:.1f}" for value in accuracies(lines, len(lines)))
    return f"{both} ({100 * columns.last(lines, 'worst_client_accuracy'):.0f})"


SCREEN = (
    f"After N rounds: mean of D_S and D_G in % over the last {WINDOW} of them and over the settings, one seed; "
    f"- means dropped: the better half goes on, and all within {MARGIN} points of its last. (reference): never dropped "
    "and never chosen. By setting: D_S / D_G over the last rounds of the last stage that the policy took part in, and "
    "the accuracy of the worst client on its own data; extra: gradients for sampling per gradient for training."
)


def screen_table(cells: Sequence[Cell], stages: Sequence[Stage]) -> Table:
    """Return the scores of every complete stage, and the accuracies by setting in the last one of each policy."""
    came = {label: [stage for stage in stages if label in stage.scores] for label in stages[0].scores}
    ranked = sorted(came, key=lambda label: (-len(came[label]), -came[label][-1].mean(label)))
    settings = list(stages[0].scores[ranked[0]])
    runs = {(cell.label, cell.group): cell.lines for cell in cells}
    rows = []
    for label in ranked:
        rounds = came[label][-1].rounds
        own = [runs[label, setting][:rounds] for setting in settings]
        scores = [f"{stage.mean(label):.1f}" if label in stage.scores else "-" for stage in stages]
        rows.append((_name(label), *scores, *map(_on_setting, own), f"{columns.extra_gradients(own):.1f}"))
    after = [f"after {stage.rounds}" for stage in stages]
    return ("policy", *after, *(f"{setting}: D_S / D_G (worst)" for setting in settings), "extra %"), rows


def _by_stage(lines: Lines) -> dict[int, float]:
    """Return the score after every stage that a run has come to."""
    return {rounds: score(lines, rounds) for rounds in STAGES if len(lines) >= rounds}


def screen_picture(runs: Sequence[FoundRun]) -> Figure:
    """Draw the score of every policy after every stage, one panel per setting; the best in the last stage on top."""
    groups = by_group(runs)
    known = {
        group: {label: _by_stage(own[0].lines) for label, own in labelled.items()} for group, labelled in groups.items()
    }
    labels = [label for label in next(iter(known.values()), {}) if all(own.get(label) for own in known.values())]
    if not labels:
        raise NotDrawnError("no policy has come to the end of a stage on every setting")

    def reached(label: str) -> tuple[int, float]:
        rounds = min(max(own[label]) for own in known.values())
        return rounds, float(np.mean([own[label][rounds] for own in known.values()]))

    labels.sort(key=reached)
    figure, axes = sheet(1, len(known), PAGE, 0.9 + 0.16 * len(labels), sharey=True)
    for axis, (group, scores) in zip(axes.flat, known.items(), strict=True):
        for rounds, colour, marker in zip(STAGES, COLOURS, ("o", "s", "^"), strict=False):
            there = [place for place, label in enumerate(labels) if rounds in scores[label]]
            values = [scores[labels[place]][rounds] for place in there]
            axis.plot(values, there, marker, color=colour, label=f"after {rounds} rounds")
        axis.set_yticks(range(len(labels)), [_name(label) for label in labels])
        tidy(axis, group, "mean of $D_S$ and $D_G$ in %", "")
    legend_below(figure)
    return figure
