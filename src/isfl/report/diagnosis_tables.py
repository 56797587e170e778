"""The tables behind a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isfl.report.advice import FLOOR, TARGET_FLOOR
from isfl.report.diagnosis import ADVISED, Diagnosis
from isfl.report.split import HEADINGS, MOST_ROWS, rows_of, shortened


@dataclass(frozen=True)
class TextTable:
    """Title, headings, rows, and what the columns mean."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str


def tables(diagnosis: Diagnosis) -> list[TextTable]:
    """The skew card, the classes, what each way of drawing is worth, and what floors do."""
    federation = diagnosis.federation
    return [
        TextTable(
            "Clients",
            HEADINGS,
            rows_of(federation.counts, federation.clients),
            "missing: classes it lacks; Hellinger, variation: distance of its label mix from the federation's (0 to "
            "1); effective: what its samples are worth when drawn by that mix; skew %: its part in the whole skew.",
        ),
        TextTable(
            "Classes",
            ("class", "samples", "share %", "held by", "skew %"),
            _class_rows(diagnosis),
            "held by: clients with at least one sample; skew %: its part in the whole skew.",
        ),
        TextTable(
            f"Ways of drawing, {_lipschitz_words(diagnosis)}",
            ("scheme", "rho", "/ FedAvg", "/ Uniform-IS", "effective %", "largest %"),
            _draw_rows(diagnosis),
            "Theory, not accuracy. rho: the factor of the convergence bound that sampling moves, mean over clients by "
            f"size, {_unit(diagnosis)}; effective: what the samples are worth when drawn so; largest: the mean of a "
            f"client's largest probability. isfl: {_rule_words(diagnosis)}; advised: floor {FLOOR}, target floor "
            f"{TARGET_FLOOR}; minimum: the exact minimum of rho at isfl's floors, no policy by itself.",
        ),
        TextTable(
            "What the floor does",
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
