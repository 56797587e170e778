"""`python -m benchmarks.run`: every part, its table, its JSON file and picture; exit code 1 if a bar is missed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, commit, machine
from benchmarks.parts import PARTS, MeasureError, Options, Part, Result

BUSY = 0.5
"""A higher load average means that other programs use the machine."""


def main(arguments: Sequence[str] | None = None, parts: Mapping[str, Part] = PARTS) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer repetitions: about ten minutes")
    parser.add_argument("--only", metavar="PARTS", help=f"some of: {','.join(parts)}")
    parser.add_argument("--resume", action="store_true", help="skip parts that --out has from this commit, same sizes")
    parser.add_argument("--out", type=Path, default=ROOT / "results/performance", help="where PART.json and .png go")
    parser.add_argument("--images", type=int, help="peers: images per client")
    parser.add_argument("--repetitions", type=int, help="peers: visits per contestant")
    given = parser.parse_args(arguments)
    names = given.only.split(",") if given.only else list(parts)
    if unknown := [name for name in names if name not in parts]:
        parser.error(f"--only: there is no part {unknown[0]!r}; choose from {', '.join(parts)}")
    options = Options(given.quick, given.images, given.repetitions)
    where = {"machine": machine(), "commit": commit()}
    load = where["machine"]["load_average_at_start"][0]  # type: ignore[index]
    if load > BUSY:
        print(f"the machine is busy (load average {load:.1f}): times will be unreliable", file=sys.stderr)
    missed = []
    for name in names:
        if given.resume and (known := measured(given.out / f"{name}.json", where["commit"], options)):
            print(f"{name}: measured at this commit already", file=sys.stderr)
            missed += [f"{name}: {line}" for line in known["missed"]]
            continue
        try:
            result = {**where, "quick": options.quick, **parts[name].measure(options)}
        except MeasureError as reason:
            print(f"{name}: {reason}", file=sys.stderr)
            return 2
        write(result, given.out / f"{name}.json")
        if (draw := parts[name].draw) is not None:
            draw(result, given.out / f"{name}.png")
        print(report(result), flush=True)
        missed += [f"{name}: {line}" for line in result["missed"]]
    for line in missed:
        print(f"MISSED {line}")
    return 1 if missed else 0


def measured(file: Path, commit: object, options: Options) -> Result | None:
    """Return a part that an earlier benchmark of this commit wrote; None if there is none of the same size."""
    if not isinstance(commit, str) or commit.endswith("+") or not file.exists():
        return None
    result: Result = json.loads(file.read_text(encoding="utf-8"))
    return result if (result["commit"], result["quick"]) == (commit, options.quick) else None


def write(result: Result, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def report(result: Result) -> str:
    """Return the part in Markdown."""
    lines = [f"\n### {result['title']}\n", table(result["rows"])]
    return "\n".join(lines + [f"\n{note}" for note in result.get("notes", [])])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "nothing was measured"
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(_cell(row.get(c)) for c in columns) + " |" for row in rows])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return str(value).replace("|", "\\|")  # a bar would end the cell


if __name__ == "__main__":
    sys.exit(main())
