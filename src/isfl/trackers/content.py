"""What trackers report: numbers of a round, the table of clients, the report; and which tracked run is resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isfl import layout
from isfl.files import write_whole
from isfl.lines import LineReader
from isfl.report.clients import MEASURES, by_client
from isfl.report.numbers import thinned
from isfl.report.page import write_report

NOT_MEASURED = ("round", "worst_client")
"""Numbers of a line that identify something and measure nothing."""
HEADINGS = ("round", "client", *(measure.removeprefix("client_") for measure in MEASURES))
TRACKED = "tracked.json"
"""The file in a tracker's directory that says where it got to."""


def scalars(line: Mapping[str, Any], without: Sequence[str] = ()) -> Iterator[tuple[str, float]]:
    """Yield every measured number with its tag, `group/name` where it is nested; of clients only their number.

    A table, such as the confusion matrix, has none. `without` are keys of the line to leave out.
    """
    for key, value in line.items():
        if key in without or (key in MEASURES and isinstance(value, Mapping)):  # other clients in every round
            continue
        if key in ("participants", "late", "refused"):
            yield f"clients/{key}", len(value)
        elif isinstance(value, Mapping):
            yield from ((f"{key}/{tag}", number) for tag, number in scalars(value))
        elif isinstance(value, list):
            yield from ((f"{key}/{i}", number) for i, number in enumerate(value) if isinstance(number, int | float))
        elif isinstance(value, int | float) and key not in NOT_MEASURED:
            yield key, value


def client_rows(directory: Path, most: int | None = None) -> list[tuple[Any, ...]]:
    """Return the numbers of every client and round of a run, under `HEADINGS`; None where one was not measured.

    Read from the run directory, so that a resumed run has the rounds before it. With `most`, rounds are left out evenly
    until at most that number of rows is left.
    """
    groups = []
    for line in LineReader(directory / layout.METRICS).read():
        measured = [by_client(line, measure) for measure in MEASURES]
        clients = sorted({client for values in measured for client in values})
        if clients:
            groups.append([(line["round"], k, *(values.get(k) for values in measured)) for k in clients])
    if most is not None and groups:
        groups = thinned(groups, most // max(map(len, groups)))
    return [row for group in groups for row in group]


def report_in(place: Path, directory: Path) -> Path:
    """Write the report of a run into another directory; return its path."""
    write_report([directory], place / layout.REPORT)
    return place / layout.REPORT


def run_name(directory: Path) -> str:
    """Return a name by which a person knows the run: its directory, with the scheme's where a comparison has one."""
    return "/".join(directory.resolve().parts[-2:])


@dataclass(frozen=True)
class Tracked:
    """Which tracked run a run directory belongs to, and the last round it has."""

    id: str
    round: int


def tracked_so_far(place: Path) -> Tracked | None:
    """Return what `remember` wrote; None if the run was not tracked yet."""
    try:
        content = json.loads((place / TRACKED).read_text(encoding="utf-8"))
        return Tracked(str(content["id"]), int(content["round"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(place: Path, tracked: Tracked) -> None:
    """Write down where tracking got to, so that a resumed run goes on from there."""
    place.mkdir(exist_ok=True)
    write_whole(place / TRACKED, json.dumps(asdict(tracked)).encode())


def untracked(directory: Path, line: Mapping[str, Any], after: int) -> list[Mapping[str, Any]]:
    """Return the rounds to report once this one is done: all after `after`, those of an earlier process as well."""
    missed = [old for old in LineReader(directory / layout.METRICS).read() if after < old["round"] < line["round"]]
    return [*missed, line] if line["round"] > after else []
