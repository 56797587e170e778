"""`python -m campaigns.run`: make every kind of fault, write the table; exit code 1 if a run was lost or differs."""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, commit, machine
from benchmarks.run import report, write

from campaigns.kinds import GROUPS
from campaigns.verdicts import GOOD, Judged, Kind, chance_of, row_of

Group = Mapping[str, Kind]


def main(arguments: Sequence[str] | None = None, groups: Mapping[str, tuple[str, Group]] = GROUPS) -> int:
    """Run the campaigns that are asked for; each group of faults is one JSON file and one table."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tries: about three minutes, no Flower processes")
    parser.add_argument("--only", metavar="GROUPS", help=f"some of: {','.join(groups)}")
    parser.add_argument("--seed", type=int, default=0, help="of all randomness")
    parser.add_argument("--repeat", metavar="KIND/NUMBER", help="make one try again and show what happens")
    parser.add_argument("--minutes", type=float, help="for all tries together (default: 30; quick: 3)")
    parser.add_argument("--out", type=Path, default=ROOT / "results/reliability", help="where GROUP.json goes")
    given = parser.parse_args(arguments)
    if given.repeat:
        return _repeat(given.repeat, given.seed, groups)
    names = given.only.split(",") if given.only else [name for name in groups if not (given.quick and name == SLOW)]
    if unknown := [name for name in names if name not in groups]:
        parser.error(f"--only: there is no group {unknown[0]!r}; choose from {', '.join(groups)}")
    clock = Clock(60 * (given.minutes or (3 if given.quick else 30)), [k for n in names for k in groups[n][1].values()])
    bad = 0
    for name in names:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        where = {"machine": machine(), "commit": commit(), "date": today, "quick": given.quick, "seed": given.seed}
        title, kinds = groups[name]
        result = {**where, "title": title, **campaign(kinds, given.quick, given.seed, clock)}
        write(result, given.out / f"{name}.json")
        print(report(result), flush=True)
        bad += len(result["missed"])
    return 1 if bad else 0


SLOW = "deployed"
"""The group that takes minutes per try."""


class Clock:
    """Shares the time among the kinds by their weights; what a kind leaves over goes to the later ones."""

    def __init__(self, seconds: float, kinds: Sequence[Kind]) -> None:
        self.end, self.weights = time.monotonic() + seconds, sum(kind.weight for kind in kinds)

    def share(self, kind: Kind) -> float:
        """Return how many seconds this kind may take from now on."""
        seconds = max(0.0, self.end - time.monotonic()) * kind.weight / self.weights
        self.weights = max(kind.weight, self.weights - kind.weight)
        return seconds


def campaign(kinds: Group, quick: bool, seed: int, clock: Clock) -> dict[str, Any]:
    """Make all tries of these kinds; a kind without time left makes fewer, at least one, and the row says how many."""
    began, rows, missed, notes = time.monotonic(), [], [], []
    with tempfile.TemporaryDirectory(prefix="isfl-campaign-") as name:
        scratch = Path(name)
        for key, kind in kinds.items():
            if (reason := kind.why_not()) is not None:
                notes.append(f"{kind.title}: left out, because {reason}.")
                continue
            judged: list[Judged] = []
            end = time.monotonic() + clock.share(kind)
            try:
                for number in range(kind.quick if quick else kind.tries):
                    if judged and time.monotonic() > end:
                        break
                    judged.append(attempt(key, kind, number, seed, scratch))
                    if judged[-1].verdict not in GOOD:
                        missed.append(f"{key}/{number}: {judged[-1].verdict.value}: {judged[-1].what}")
                        print(f"FAULT {missed[-1]}", file=sys.stderr, flush=True)
            finally:
                kind.finish(scratch)
            rows.append(row_of(kind.title, judged))
            print(f"{key}: {rows[-1]}", file=sys.stderr, flush=True)
    return {"rows": rows, "missed": missed, "notes": notes, "seconds": round(time.monotonic() - began)}


def attempt(key: str, kind: Kind, number: int, seed: int, scratch: Path) -> Judged:
    """Make one try in a directory of its own, which is removed afterwards."""
    place = scratch / f"{key}-{number}"
    place.mkdir()
    try:
        return kind.attempt(number, chance_of(seed, key, number), place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _repeat(which: str, seed: int, groups: Mapping[str, tuple[str, Group]]) -> int:
    key, _, number = which.partition("/")
    kinds = {name: kind for _, group in groups.values() for name, kind in group.items()}
    with tempfile.TemporaryDirectory(prefix="isfl-campaign-") as scratch:
        try:
            one = attempt(key, kinds[key], int(number), seed, Path(scratch))
        finally:
            kinds[key].finish(Path(scratch))
    print(f"{one.verdict.value}: {one.what}")
    return 0 if one.verdict in GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
