"""The table of a comparison, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from isfl import layout
from isfl.experiment.compare import Summary
from isfl.experiment.directory import told_when_full
from isfl.files import write_whole

HEADINGS = ("scheme", "D_S %", "D_G %", "worst client %", "extra %", "seconds")


def table(rows: Sequence[Summary]) -> list[tuple[str, ...]]:
    """Return the summary as text cells, one row per scheme."""
    return [
        (
            row.scheme,
            _number(row.standard, row.standard_spread, row.seeds),
            _number(row.global_, row.global_spread, row.seeds),
            _number(row.worst_client, row.worst_client_spread, row.seeds),
            f"{row.extra_gradients:.0f}",
            f"{row.seconds:.1f}",
        )
        for row in rows
    ]


def _number(mean: float, spread: float, seeds: int) -> str:
    return f"{mean:.1f} ± {spread:.1f}" if seeds > 1 else f"{mean:.1f}"


def caption(rows: Sequence[Summary]) -> str:
    """Return what the numbers of the table are."""
    seeds = rows[0].seeds
    spread = f"mean ± standard deviation of {seeds} seeds" if seeds > 1 else "one seed"
    return (
        f"Last round, {spread}. D_S: balanced test set; D_G: all clients' data; worst client: on its own data; "
        "extra: gradients for sampling per gradient for training; seconds: training and sampling, one core."
    )


def write_summary(rows: Sequence[Summary], out: Path) -> None:
    """Write the table as JSON for programs and as Markdown for people."""
    lines = [" | ".join(HEADINGS), " | ".join("---" for _ in HEADINGS), *(" | ".join(row) for row in table(rows))]
    text = "\n".join(f"| {line} |" for line in lines)
    with told_when_full(out):
        write_whole(out / layout.SUMMARY, (json.dumps([asdict(row) for row in rows], indent=2) + "\n").encode())
        write_whole(out / layout.SUMMARY_TEXT, f"{text}\n\n{caption(rows)}\n".encode())
