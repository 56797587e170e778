"""`python -m campaigns.fuzz`: thousands of malformed inputs; exit code 1 after a traceback, a hang or a crash."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, machine
from benchmarks.run import report, write

from campaigns.run import check_names, one_try, results, today
from campaigns.targets import TARGETS, Target
from campaigns.verdicts import chance_of
from isfl.errors import UserError
from isfl.federation.codec import CodecError

SECONDS = 10
"""For one input."""
MEMORY = 2 << 30
"""Bytes that an input may take beyond what the process has."""
BATCH = 50
ENDINGS = ("accepted", "refused", "traceback", "too slow", "too large", "crash")
GOOD = ("accepted", "refused")


class TooLongError(BaseException):
    """An input took too long; not an `Exception`, which the code under test may catch."""


@dataclass(frozen=True)
class Outcome:
    """How one input ended."""

    number: int
    ending: str
    what: str
    seconds: float
    peak: int
    """The largest resident memory of the process so far, in bytes."""


def main(arguments: Sequence[str] | None = None, targets: Mapping[str, Target] = TARGETS) -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.fuzz", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the inputs")
    parser.add_argument("--only", metavar="TARGETS", help=f"some of: {','.join(targets)}")
    parser.add_argument("--seed", type=int, default=0, help="of all randomness")
    parser.add_argument("--repeat", metavar="TARGET/NUMBER", help="give one input again, without any limit")
    parser.add_argument("--keep", type=Path, help="directory for the files of inputs that fail")
    parser.add_argument("--minutes", type=float, default=30.0, help="after which no further input is given")
    parser.add_argument("--out", type=Path, help="where fuzz.json goes")
    given = parser.parse_args(arguments)
    if given.repeat:
        name, number = one_try(parser, given.repeat, targets)
        with tempfile.TemporaryDirectory(prefix="isfl-fuzz-") as scratch:
            targets[name].give(chance_of(given.seed, name, number), Path(scratch))
        return 0
    names = given.only.split(",") if given.only else list(targets)
    check_names(parser, "--only", names, targets)
    where = {"machine": machine(), "commit": commit(), "date": today()}
    began, rows, missed = time.monotonic(), [], list[str]()
    for name in names:
        count = targets[name].inputs // (10 if given.quick else 1)
        end = began + 60 * given.minutes
        outcomes = list(fuzz(name, targets[name], count, given.seed, given.keep, end))
        rows.append(row_of(targets[name].title, outcomes))
        missed += [f"{name}/{one.number}: {one.ending}: {one.what}" for one in outcomes if one.ending not in GOOD]
        print(f"{name}: {rows[-1]}", *missed, sep="\n", file=sys.stderr, flush=True)
    result = {"title": "Malformed inputs", "rows": rows, "missed": missed, "seconds": round(time.monotonic() - began)}
    command = list(sys.argv[1:] if arguments is None else arguments)
    result = {**where, "quick": given.quick, "seed": given.seed, "arguments": command, **result}
    write(result, results(given.out, given.quick) / "fuzz.json")
    print(report(result))
    return 1 if missed else 0


def row_of(title: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    counts = Counter(one.ending for one in outcomes)
    return {
        "input": title,
        "inputs": len(outcomes),
        **{ending: counts[ending] for ending in ENDINGS},
        "slowest in seconds": max((one.seconds for one in outcomes), default=0.0),
        "most memory in MB": max((one.peak for one in outcomes), default=0) >> 20,
    }


def fuzz(name: str, target: Target, count: int, seed: int, keep: Path | None, end: float) -> list[Outcome]:
    """Give `count` inputs, in forked processes of a batch each; a process that dies is replaced."""
    outcomes: list[Outcome] = []
    target.prepare()
    while len(outcomes) < count and time.monotonic() < end:
        first = len(outcomes)
        found = _forked(lambda tell: _batch(name, target, range(first, min(first + BATCH, count)), seed, keep, tell))  # noqa: B023
        outcomes += found
        if len(found) < min(BATCH, count - first):
            outcomes.append(
                Outcome(len(outcomes), "crash", "the process died, or took too long in compiled code", 0.0, 0)
            )
    return outcomes


Tell = Callable[[Outcome], None]


def _forked(work: Callable[[Tell], None]) -> list[Outcome]:
    """Do the work in a forked process and return what it told."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            silent = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(silent, descriptor)
            with os.fdopen(writing, "w", encoding="utf-8") as stream:
                work(lambda outcome: print(json.dumps(asdict(outcome)), file=stream, flush=True))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        told = [Outcome(**json.loads(line)) for line in stream]
    os.waitpid(child, 0)
    return told


def _batch(name: str, target: Target, numbers: Sequence[int], seed: int, keep: Path | None, tell: Tell) -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, _too_long)
    silent = os.open(os.devnull, os.O_WRONLY)
    for number in numbers:
        faulthandler.dump_traceback_later(3 * SECONDS, exit=True, file=silent)  # compiled code hears no signal
        with tempfile.TemporaryDirectory(prefix="isfl-fuzz-", ignore_cleanup_errors=True) as scratch:
            outcome = _given(name, target, number, seed, Path(scratch))
            tell(outcome)
            if keep is not None and outcome.ending not in GOOD:
                shutil.copytree(scratch, keep / f"{name}-{number}", dirs_exist_ok=True)


def _too_long(number: int, frame: object) -> None:
    raise TooLongError


def _given(name: str, target: Target, number: int, seed: int, scratch: Path) -> Outcome:
    """Give one input and return how it ended."""
    began, ending, what = time.monotonic(), "accepted", ""
    signal.alarm(SECONDS)
    try:
        target.give(chance_of(seed, name, number), scratch)
    except (UserError, CodecError) as error:
        ending, what = "refused", str(error)
        if "\n" in what.strip():
            ending = "traceback"
        elif "not enough memory" in what:
            ending = "too large"
    except TooLongError:
        ending, what = "too slow", _short(traceback.format_exc())
    except MemoryError:
        ending, what = "too large", _short(traceback.format_exc())
    except BaseException:
        ending, what = "traceback", _short(traceback.format_exc())
    finally:
        signal.alarm(0)
    seconds = time.monotonic() - began
    if ending in GOOD and seconds > SECONDS:
        ending, what = "too slow", "it caught the exception that says so"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Outcome(number, ending, what if ending not in GOOD else "", seconds, peak)


def _short(text: str) -> str:
    """Return the last line of a traceback and the last place in the package; `--repeat` shows all of it."""
    places = [line.rpartition("isfl/")[2] for line in text.splitlines() if "src/isfl/" in line]
    return f"{text.strip().splitlines()[-1].strip()[:200]} ({places[-1] if places else 'elsewhere'})"


if __name__ == "__main__":
    sys.exit(main())
