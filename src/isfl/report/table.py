"""The table of a comparison, for people and for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from isfl import layout
from isfl.experiment.cells import Cell
from isfl.experiment.compare import GOAL, Summary
from isfl.experiment.directory import told_when_full
from isfl.experiment.paired import Paired
from isfl.files import write_whole

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Headings, which may have a line break for terminals, and rows."""


def accuracy_table(rows: Sequence[Summary]) -> Table:
    """Return the accuracies of the last round, one row per scheme."""
    headings = ("scheme", "D_S %", "D_G %", "worst\nclient %", "rarest\nclass %", "extra %")
    return headings, [
        (
            row.scheme,
            _number(row.standard, row.standard_spread, row.seeds),
            _number(row.global_, row.global_spread, row.seeds),
            _number(row.worst_client, row.worst_client_spread, row.seeds),
            _number(row.rarest_class, row.rarest_class_spread, row.seeds),
            f"{row.extra_gradients:.0f}",
        )
        for row in rows
    ]


def cost_table(rows: Sequence[Summary]) -> Table:
    """Return what a scheme needs to come close to the first one, and its lead in the end, one row per scheme."""
    headings = ("scheme", "rounds\nto goal", "samples\nto goal")
    return (*headings, f"D_S\nagainst {rows[0].scheme}", "worst\nclient"), [
        (
            row.scheme,
            "-" if row.rounds_to_goal is None else f"{row.rounds_to_goal:.1f}".removesuffix(".0"),
            _count(row.samples_to_goal),
            *(difference(row.against_first.get(key)) for key in ("accuracy_standard", "worst_client_accuracy")),
        )
        for row in rows
    ]


def clock_table(rows: Sequence[Summary]) -> Table | None:
    """Return the simulated seconds, one row per scheme; None if clients have no simulated latencies."""
    if all(row.simulated_seconds is None for row in rows):
        return None
    return ("scheme", "simulated s", "simulated s\nto goal"), [
        (row.scheme, _count(row.simulated_seconds), _count(row.simulated_seconds_to_goal)) for row in rows
    ]


CLOCK = "Simulated s: time that the rounds would have taken, all of them and those up to the goal."


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _number(mean: float, spread: float, seeds: int) -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.1f} ± {spread:.1f}" if seeds > 1 else f"{mean:.1f}"


def difference(pair: Paired | None) -> str:
    """Return a paired difference with its interval and how many seeds agree in sign."""
    if pair is None:
        return "-"
    if pair.half_width is None:
        return f"{pair.mean:+.1f}"
    return f"{pair.mean:+.1f} ± {pair.half_width:.1f} ({pair.ahead}/{pair.seeds})"


def accuracy_caption(rows: Sequence[Summary]) -> str:
    """Return what the numbers of the table of accuracies are."""
    seeds = rows[0].seeds
    spread = f"mean ± standard deviation of {seeds} seeds" if seeds > 1 else "one seed"
    return (
        f"Last round, {spread}. D_S: balanced test set; D_G: all clients' data; worst client: on its own data; "
        "rarest class: recall on D_S of the class with the fewest samples over all clients; "
        "extra: gradients for sampling per gradient for training."
    )


def cost_caption(rows: Sequence[Summary], goal: float = GOAL) -> str:
    """Return what the numbers of the table of costs are."""
    first = rows[0]
    share = "" if goal == 1 else f"{100 * goal:.0f} % of "
    interval = ", with a 95 % interval and the seeds that agree in sign" if first.seeds > 1 else ""
    return (
        f"Goal: {share}the last D_S of {first.scheme} with the same seed; samples: gradients for "
        "training and sampling until the goal is reached; right: differences in points in the last round, seed by "
        "seed, "
        f"against {first.scheme}{interval}."
    )


def write_summary(rows: Sequence[Summary], out: Path) -> None:
    """Write the table as JSON for programs and as Markdown for people."""
    parts = [markdown_table(*accuracy_table(rows)), accuracy_caption(rows)]
    parts += [markdown_table(*cost_table(rows)), cost_caption(rows)]
    if (clock := clock_table(rows)) is not None:
        parts += [markdown_table(*clock), CLOCK]
    with told_when_full(out):
        write_whole(out / layout.SUMMARY, (json.dumps([asdict(row) for row in rows], indent=2) + "\n").encode())
        write_whole(out / layout.SUMMARY_TEXT, ("\n\n".join(parts) + "\n").encode())


def not_made(cells: Sequence[Cell]) -> str:
    """Return a sentence on the runs of an experiment that are not complete; empty if there are none."""
    missing = sum(not cell.complete for cell in cells)
    if missing == 1:
        return " One run of this experiment has not been made."
    return f" {missing} runs of this experiment have not been made." if missing else ""


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    heading = [text.replace("\n", " ") for text in headings]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heading, ["---"] * len(heading), *rows))
