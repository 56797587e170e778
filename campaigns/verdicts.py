"""How a try ends, and the table of a campaign."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any


class Verdict(Enum):
    """What became of a run after a fault; the value is the heading of its column."""

    SAME = "same bits"
    """The run finished, if need be after `isfl resume`, with the bits of an undisturbed run."""
    REFUSED = "refused clearly"
    """Exit code 2 and one line that names the file or the limit."""
    NAMED = "client left out, named"
    """The run finished without a client's update in some rounds, and its metrics name exactly that client."""
    UNCLEAR = "unclear error"
    LOST = "lost"
    """The run cannot be finished."""
    DIFFERENT = "silently different"


GOOD = (Verdict.SAME, Verdict.REFUSED, Verdict.NAMED)


@dataclass(frozen=True)
class Judged:
    """The verdict of one try, with what happened in one line."""

    verdict: Verdict
    what: str
    faults: int = 0
    """How many faults took place: a process may end before it is killed, and a limit may be large enough."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault: `attempt(number, chance, scratch)` makes one try of it, in an empty directory."""

    title: str
    tries: int | Callable[[Path], int]
    """How many to make; or a function that returns how many different ones there are, if they can be counted."""
    quick: int
    """The number of tries with `--quick`."""
    attempt: Callable[[int, random.Random, Path], Judged]
    weight: float = 1.0
    """Its share of the time, beside the other kinds."""
    why_not: Callable[[], str | None] = lambda: None
    """Returns why there can be no try on this system; None if there can."""
    lanes: int = 1
    """How many tries are made at the same time, in threads: for tries that mostly wait."""


def chance_of(seed: int, name: str, number: int) -> random.Random:
    """Return the randomness of one try, which depends on nothing but its number."""
    return random.Random(f"{seed} {name} {number}")


def row_of(title: str, judged: Sequence[Judged], possible: int | None = None) -> dict[str, Any]:
    """Return a row of the table: the tries, how many different ones there are, and how many ended in each way."""
    faults = sum(one.faults for one in judged)
    counts = {verdict.value: sum(one.verdict is verdict for one in judged) for verdict in Verdict}
    return {"fault": title, "tries": len(judged), "possible": possible, "faults": faults, **counts}
