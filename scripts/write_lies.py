"""Compute what one liar gains in a label-skewed federation, and write the table into `docs/robustness.md`.

python scripts/write_lies.py
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from isfl.report.table import markdown_table
from isfl.theory.arrays import Array
from isfl.theory.lies import largest_target_shift, liar_weight, probability_shift_bound, target_shift_bound
from isfl.theory.probabilities import sampling_probabilities

PAGE = Path(__file__).parent.parent / "docs/robustness.md"
CLASSES, SAMPLES, FLOOR = 10, 100, 0.05
MARKED = re.compile(r"(<!-- lies -->\n).*?(<!-- /lies -->)", re.DOTALL)


def federation(clients: int) -> tuple[Array, Array]:
    """Return class counts of clients of one size, label-skewed, and Lipschitz values."""
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet(np.full(CLASSES, 0.2), size=clients)
    counts = np.stack([rng.multinomial(SAMPLES, mix) for mix in mixes]).astype(np.float64)
    return counts, rng.lognormal(0.0, 0.3, size=(clients, CLASSES))


def row(clients: int, name: str, claimed: float) -> tuple[str, ...]:
    """Return what a client gains that claims this many samples, and the bounds on it."""
    counts, lipschitz = federation(clients)
    honest, others = counts[0], counts[1:].sum(axis=0)
    truth = counts.sum(axis=0) / counts.sum()
    lie, shift = largest_target_shift(others, honest, claimed)
    lied = (others + lie) / (others + lie).sum()
    local = counts[1:] / SAMPLES
    before, after = (sampling_probabilities(p, local, lipschitz[1:], floor=FLOOR) for p in (truth, lied))
    bound = probability_shift_bound(truth, local, lipschitz[1:], shift, floor=FLOOR)
    return (
        str(clients),
        name,
        f"{liar_weight(others.sum(), claimed):.2f}",
        f"{shift:.2f} / {target_shift_bound(others.sum(), honest.sum(), claimed):.2f}",
        f"{np.abs(after - before).sum(axis=1).max():.2f} / {bound.max():.2f}",
    )


def section() -> str:
    """Return the table as the page has it."""
    headings = ("clients", "the liar claims", "its weight", "shift of p / bound", "largest shift of a q / bound")
    rows = [
        row(10, "its true size", SAMPLES),
        row(10, "10 times its size", 10 * SAMPLES),
        row(10, "1,000 times its size", 1000 * SAMPLES),
        row(10, "any size, `cap = 1`", SAMPLES),
        row(100, "its true size", SAMPLES),
        row(100, "1,000 times its size", 1000 * SAMPLES),
        row(100, "any size, `cap = 1`", SAMPLES),
    ]
    return markdown_table(headings, rows) + "\n"


if __name__ == "__main__":
    text = MARKED.sub(lambda found: found[1] + section() + found[2], PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
