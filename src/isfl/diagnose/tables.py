"""The tables behind a diagnosis: clients, classes, sampling rules, floors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isfl.diagnose.advice import FLOOR, TARGET_FLOOR
from isfl.diagnose.diagnosis import ADVISED, Diagnosis
from isfl.theory import skew_card
from isfl.theory.drivers import skew_drivers

SKEW_HEADINGS = ("client", "samples", "missing", "Hellinger", "variation", "effective", "skew %")
"""Per client: samples, missing classes, two distances to the global label mix, the effective sample size when it draws
by that mix, and its share of the total skew."""
MOST_ROWS = 40
"""A longer table is cut."""
LONGEST_NAME = 20


@dataclass(frozen=True)
class TextTable:
    """A table of text cells; the caption explains its columns."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str


def tables(diagnosis: Diagnosis) -> list[TextTable]:
    """Return the tables of `isfl diagnose`: the skew card, the classes, the sampling rules and the effect of floors."""
    federation = diagnosis.federation
    return [
        TextTable(
            "Clients",
            SKEW_HEADINGS,
            skew_rows(federation.counts, federation.clients),
            "missing: classes the client lacks; Hellinger, variation: distance of its label mix from the federation's "
            "(0 to 1); effective: effective sample size when drawn by that mix; skew %: share of the total skew.",
        ),
        TextTable(
            "Classes",
            ("class", "samples", "share %", "held by", "skew %"),
            _class_rows(diagnosis),
            "held by: clients with at least one sample; skew %: share of the total skew.",
        ),
        TextTable(
            f"Sampling rules, {_lipschitz_words(diagnosis)}",
            ("scheme", "rho", "/ FedAvg", "/ Uniform-IS", "effective %", "largest %"),
            _draw_rows(diagnosis),
            "Theory, not accuracy. rho: the factor of the convergence bound that sampling moves, mean over clients by "
            f"size, {_unit(diagnosis)}; effective: effective sample size as a share of all samples; largest: the mean "
            f"of the clients' largest probabilities. isfl: {_rule_words(diagnosis)}; advised: floor {FLOOR}, target "
            f"floor {TARGET_FLOOR}; minimum: the exact minimum of rho at isfl's floors, not a sampling rule to use.",
        ),
        TextTable(
            "Effect of the floor",
            ("floor", "rho paper", "rho exact", "largest % paper", "largest % exact"),
            [
                (
                    f"{effect.floor:g}",
                    f"{effect.paper.rho:.3f}",
                    f"{effect.exact.rho:.3f}",
                    f"{100 * effect.paper.largest:.0f}",
                    f"{100 * effect.exact.largest:.0f}",
                )
                for effect in diagnosis.floors
            ],
            "q_i >= floor * p^k_i, by the paper's rule and by the exact minimum, without a target floor.",
        ),
    ]


def _draw_rows(diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    base = diagnosis.draws
    names = {ADVISED: "isfl, advised"}
    return [
        (
            names.get(name, name),
            f"{draws.rho:.3f}",
            f"{draws.rho / base['fedavg'].rho:.2f}",
            f"{draws.rho / base['uniform-is'].rho:.2f}",
            f"{100 * draws.effective:.0f}",
            f"{100 * draws.largest:.0f}",
        )
        for name, draws in base.items()
    ]


def _class_rows(diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    counts = diagnosis.federation.counts
    totals, held = counts.sum(axis=0), (counts > 0).sum(axis=0)
    rows: list[tuple[str, ...]] = [
        (
            shortened(name),
            f"{totals[i]:.0f}",
            f"{100 * totals[i] / totals.sum():.1f}",
            f"{held[i]}",
            f"{100 * diagnosis.drivers.classes[i]:.1f}",
        )
        for i, name in enumerate(diagnosis.federation.classes[:MOST_ROWS])
    ]
    more = len(totals) - MOST_ROWS
    return [*rows, (f"... {more} more", "", "", "", "")] if more > 0 else rows


def _lipschitz_words(diagnosis: Diagnosis) -> str:
    return "L flat" if diagnosis.question.lipschitz is None else "L as given"


def _unit(diagnosis: Diagnosis) -> str:
    return "with flat L 1 + ||p - q||^2" if diagnosis.question.lipschitz is None else "for a largest L of 1"


def _rule_words(diagnosis: Diagnosis) -> str:
    rule = diagnosis.question.rule
    return f"solver {rule.solver}, floor {rule.floor:g}, target floor {rule.target_floor:g}"


def skew_rows(counts: np.ndarray, clients: Sequence[str] | None = None) -> list[tuple[str, ...]]:
    """Return the skew card of (K, C) counts: one row per client up to `MOST_ROWS`, then the mean over all clients."""
    card, drivers = skew_card(counts), skew_drivers(counts)
    shares = 100 * drivers.clients
    columns = (card.samples, card.missing, card.hellinger, card.total_variation, card.effective_size, shares)
    forms = ("{:.0f}", "{:.0f}", "{:.3f}", "{:.3f}", "{:.0f}", "{:.1f}")
    names = clients or range(len(counts))
    rows = [
        (shortened(str(names[k])), *(form.format(column[k]) for form, column in zip(forms, columns, strict=True)))
        for k in range(min(len(counts), MOST_ROWS))
    ]
    if len(counts) > MOST_ROWS:
        rows.append((f"... {len(counts) - MOST_ROWS} more", *("" for _ in columns)))
    mean = ("{:.0f}", "{:.1f}", "{:.3f}", "{:.3f}", "{:.0f}", "{:.1f}")
    return [*rows, ("mean", *(form.format(column.mean()) for form, column in zip(mean, columns, strict=True)))]


def shortened(name: str) -> str:
    """Cut a name so that it fits a table cell."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
