"""`python -m campaigns.run`: make every kind of fault, write the table; exit code 1 if a run was lost or differs."""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen
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
    parser.add_argument("--out", type=Path, help=f"where GROUP.json goes (default: {RESULTS}; quick: {QUICK_RESULTS})")
    given = parser.parse_args(arguments)
    if given.repeat:
        every = {name: kind for _, group in groups.values() for name, kind in group.items()}
        return _repeat(*one_try(parser, given.repeat, every), given.seed, every)
    names = given.only.split(",") if given.only else [name for name in groups if not (given.quick and name == SLOW)]
    check_names(parser, "--only", names, groups)
    beside, bad = None, 0
    if SLOW in names and len(names) > 1:
        beside = Popen([sys.executable, "-m", "campaigns.run", *_only(SLOW, given)], cwd=ROOT)
        names.remove(SLOW)
    minutes = given.minutes or (3 if given.quick else 30)
    clock = Clock(60 * minutes, [kind for name in names for kind in groups[name][1].values()])
    command = list(sys.argv[1:] if arguments is None else arguments)
    try:
        for name in names:
            where = {"machine": machine(), "commit": commit(), "date": today(), "quick": given.quick}
            title, kinds = groups[name]
            tried = campaign(kinds, given.quick, given.seed, clock)
            result = {**where, "seed": given.seed, "arguments": command, "title": title, **tried}
            write(result, results(given.out, given.quick) / f"{name}.json")
            print(report(result), flush=True)
            bad += len(result["missed"])
    finally:
        bad += beside.wait() if beside is not None else 0
    return 1 if bad else 0


def check_names(parser: argparse.ArgumentParser, option: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an option with a name that is not known."""
    choices = list(known)
    if unknown := [name for name in names if name not in choices]:
        parser.error(f"{option}: there is no {unknown[0]!r}; choose from {', '.join(choices)}")


def one_try(parser: argparse.ArgumentParser, text: str, known: Iterable[str]) -> tuple[str, int]:
    """Parse the NAME/NUMBER of `--repeat`."""
    name, _, number = text.partition("/")
    check_names(parser, "--repeat", [name], known)
    if not number.isdecimal():
        parser.error(f"--repeat {text}: write the number of a try, such as {name}/0")
    return name, int(number)


SLOW = "deployed"
"""The group that takes minutes per try, most of them waiting: it is made beside the others."""
RESULTS, QUICK_RESULTS = "results/reliability", "runs/reliability-quick"


def results(given: Path | None, quick: bool) -> Path:
    """Return where the results go: a quick campaign does not replace the published ones."""
    return given or ROOT / (QUICK_RESULTS if quick else RESULTS)


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _only(group: str, given: argparse.Namespace) -> list[str]:
    """Return the same arguments for one group."""
    options = {"--seed": given.seed or None, "--minutes": given.minutes, "--out": given.out and given.out.resolve()}
    chosen = [str(word) for option in options.items() if option[1] is not None for word in option]
    return ["--only", group, *(["--quick"] if given.quick else []), *chosen]


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
            end = time.monotonic() + clock.share(kind)
            tries = kind.tries(scratch) if callable(kind.tries) else kind.tries
            judged = attempts(key, kind, kind.quick if quick else tries, seed, scratch, end)
            bad = [(number, one) for number, one in enumerate(judged) if one.verdict not in GOOD]
            missed += [f"{key}/{number}: {one.verdict.value}: {one.what}" for number, one in bad]
            rows.append(row_of(kind.title, judged, tries if callable(kind.tries) else None))
            print(f"{key}: {rows[-1]}", file=sys.stderr, flush=True)
    return {"rows": rows, "missed": missed, "notes": notes, "seconds": round(time.monotonic() - began)}


def attempts(key: str, kind: Kind, count: int, seed: int, scratch: Path, end: float) -> list[Judged]:
    """Make up to `count` tries, as many as the time until `end` suffices for, judged by the slowest so far."""
    slowest = 0.0

    def one(number: int) -> Judged | None:
        nonlocal slowest
        began = time.monotonic()
        if number >= kind.lanes and began + slowest > end:
            return None
        judged = attempt(key, kind, number, seed, scratch)
        slowest = max(slowest, time.monotonic() - began)
        if judged.verdict not in GOOD:
            print(f"FAULT {key}/{number}: {judged.verdict.value}: {judged.what}", file=sys.stderr, flush=True)
        return judged

    with ThreadPoolExecutor(kind.lanes) as pool:  # without a thread if there is one lane: others fork
        found = list(map(one, range(count)) if kind.lanes == 1 else pool.map(one, range(count)))
    return [judged for judged in found if judged is not None]


def attempt(key: str, kind: Kind, number: int, seed: int, scratch: Path) -> Judged:
    """Make one try in a directory of its own, which is removed afterwards."""
    place = scratch / f"{key}-{number}"
    place.mkdir()
    try:
        return kind.attempt(number, chance_of(seed, key, number), place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _repeat(key: str, number: int, seed: int, kinds: Group) -> int:
    with tempfile.TemporaryDirectory(prefix="isfl-campaign-") as scratch:
        one = attempt(key, kinds[key], number, seed, Path(scratch))
    print(f"{one.verdict.value}: {one.what}")
    return 0 if one.verdict in GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
