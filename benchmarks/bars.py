"""From measurements to a table and to the bars that are met or missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.contest import Visit

OURS, PLAIN, BIG = "isfl-2", "plain", "flower"
LEAST_SPEED, FLOOR_SPEED = 2.6, 1.6
"""Relative to the plain loop: what is due, and what an earlier version reached."""
MOST_CPU = 0.38
"""Relative to the plain loop; always less than any peer's."""
MOST_MEMORY, FLOOR_MEMORY = 0.42, 0.5
"""Relative to Flower."""


@dataclass(frozen=True)
class Summary:
    contestant: str
    seconds: float
    """Median over all rounds, like the next two."""
    images_a_second: float
    cpu_seconds: float
    peak_bytes: int
    """The maximum over all visits."""
    speed: float | None
    """Relative to the plain loop: the median over repetitions, each of which measures both one after the other."""


def summarise(visits: Sequence[Visit]) -> dict[str, Summary]:
    """Return one summary per contestant; contestants without a measured round are missing."""
    plain = {v.repetition: _seconds(v) for v in visits if v.contestant == PLAIN and v.rounds}
    summaries = {}
    for name in dict.fromkeys(v.contestant for v in visits if v.rounds):
        own = [v for v in visits if v.contestant == name and v.rounds]
        rounds = [r for v in own for r in v.rounds]
        ratios = [plain[v.repetition] / _seconds(v) for v in own if v.repetition in plain]
        summaries[name] = Summary(
            contestant=name,
            seconds=median(r.seconds for r in rounds),
            images_a_second=median(r.images / r.seconds for r in rounds),
            cpu_seconds=median(r.cpu_seconds for r in rounds),
            peak_bytes=max(v.peak_bytes for v in own),
            speed=median(ratios) if ratios else None,
        )
    return summaries


def _seconds(visit: Visit) -> float:
    return median(r.seconds for r in visit.rounds)


def judge(summaries: dict[str, Summary]) -> tuple[list[str], list[str]]:
    """Return the bars that are missed, and those that cannot be judged because a peer was not measured."""
    missed = [f"{name} was not measured" for name in (OURS, PLAIN) if name not in summaries]
    if missed:
        return missed, []
    ours, unjudged = summaries[OURS], []
    assert ours.speed is not None
    if ours.speed < LEAST_SPEED:
        missed.append(
            f"{OURS} is {ours.speed:.2f} times as fast as the plain loop; {LEAST_SPEED} is due"
            + _floor(ours.speed < FLOOR_SPEED, FLOOR_SPEED)
        )
    if (share := ours.cpu_seconds / summaries[PLAIN].cpu_seconds) > MOST_CPU:
        missed.append(f"{OURS} takes {share:.2f} of the plain loop's CPU seconds; at most {MOST_CPU} is due")
    for peer in ("flower", "pfl"):
        if peer not in summaries:
            unjudged.append(f"CPU seconds per round of {OURS} against {peer}")
        elif ours.cpu_seconds >= summaries[peer].cpu_seconds:
            missed.append(
                f"{OURS} takes {ours.cpu_seconds:.2f} CPU seconds per round, {peer} {summaries[peer].cpu_seconds:.2f}; "
                "it must take less"
            )
    if BIG not in summaries:
        unjudged.append(f"peak memory of {OURS} against {BIG}")
    elif (share := ours.peak_bytes / summaries[BIG].peak_bytes) > MOST_MEMORY:
        missed.append(
            f"{OURS} takes {share:.2f} of {BIG}'s memory at its peak; at most {MOST_MEMORY} is due"
            + _floor(share > FLOOR_MEMORY, FLOOR_MEMORY)
        )
    return missed, unjudged


def _floor(broken: bool, floor: float) -> str:
    return f", and {floor} was reached before" if broken else ""
