"""The table of a comparison, for people and for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from isfl import layout
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
    headings = ("scheme", "rounds\nto goal", "samples\nto goal", f"D_S\nagainst {rows[0].scheme}", "worst\nclient")
    return headings, [
        (
            row.scheme,
            "-" if row.rounds_to_goal is None else f"{row.rounds_to_goal:.1f}".removesuffix(".0"),
            "-" if row.samples_to_goal is None else f"{row.samples_to_goal:,.0f}",
            *(_difference(row.against_first.get(key)) for key in ("accuracy_standard", "worst_client_accuracy")),
        )
        for row in rows
    ]


def _number(mean: float, spread: float, seeds: int) -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.1f} ± {spread:.1f}" if seeds > 1 else f"{mean:.1f}"


def _difference(pair: Paired | None) -> str:
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


def cost_caption(rows: Sequence[Summary]) -> str:
    """Return what the numbers of the table of costs are."""
    first = rows[0]
    interval = ", with a 95 % interval and the seeds that agree in sign" if first.seeds > 1 else ""
    return (
        f"Goal: {100 * GOAL:.0f} % of the last D_S of {first.scheme} with the same seed; samples: gradients for "
        "training and sampling up to there; right: differences in points in the last round, seed by seed, against "
        f"{first.scheme}{interval}."
    )


def write_summary(rows: Sequence[Summary], out: Path) -> None:
    """Write the table as JSON for programs and as Markdown for people."""
    parts = [markdown_table(*accuracy_table(rows)), accuracy_caption(rows)]
    parts += [markdown_table(*cost_table(rows)), cost_caption(rows)]
    with told_when_full(out):
        write_whole(out / layout.SUMMARY, (json.dumps([asdict(row) for row in rows], indent=2) + "\n").encode())
        write_whole(out / layout.SUMMARY_TEXT, ("\n\n".join(parts) + "\n").encode())


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    heading = [text.replace("\n", " ") for text in headings]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heading, ["---"] * len(heading), *rows))
