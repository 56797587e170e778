"""Copy the complete cells of an `isfl reproduce` directory to `results/`, with their provenance.

    isfl reproduce table2 --scale half --out runs/table2
    python scripts/publish_reproduction.py runs/table2 COMMIT

COMMIT is the one whose code made the runs. The directory in `results/` is named after experiment, scale,
interpretation and number of clients; runs with `--set` overrides need a `--name`. Cells may still be running: those
complete so far are copied (of a screen of policies: those that it has stopped), and the command can be repeated. Cells
add up, also from several run directories of one experiment (other seeds, other `--only`): what is already published
keeps its provenance. Cells that were not requested are left out of the published plan. The table, also the one between
the markers `<!-- NAME -->` and `<!-- /NAME -->` in `docs/results.md` (policies: `docs/policy.md`), is written anew from
all cells.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from isfl import layout
from isfl.experiment import policy
from isfl.experiment.cells import Cell, planned_cells
from isfl.files import read_object, write_whole
from isfl.lines import read_lines
from isfl.problem.config import Config, config_from
from isfl.report.reproduction import is_shown, write_reproduction

ROOT = Path(__file__).parent.parent
KEPT = (*layout.DESCRIPTION, *layout.GROWING)
KIND = ("command", "title", "scale", "as", "clients")


def tables(results: Path) -> str:
    """Return the tables of a published experiment, as `docs/results.md` has them."""
    plan, _ = planned_cells(results)
    text = (results / f"{plan['title']}.md").read_text(encoding="utf-8")
    return text.removeprefix(f"# {plan['title']}\n\n").replace("## ", "### ")


def page_of(plan: dict[str, Any], root: Path = ROOT) -> Path:
    """Return the page that shows the tables of an experiment."""
    return root / "docs" / ("policy.md" if plan["title"] in policy.EXPERIMENTS else "results.md")


def name_of(plan: dict[str, Any]) -> str:
    """Return the name of the results directory."""
    if plan["set"]:
        sys.exit(f"the runs have overrides ({', '.join(plan['set'])}): give the results a name with --name")
    clients = [f"K={plan['clients']}"] if plan["clients"] else []
    return "-".join([plan["title"], plan["scale"], plan["as"], *clients])


def command_of(plan: dict[str, Any], cell: Cell) -> str:
    """Return the command that makes this one cell."""
    words = ["isfl", "reproduce", plan["title"], "--scale", plan["scale"], "--as", plan["as"]]
    words += ["--clients", str(plan["clients"])] if plan["clients"] else []
    words += [word for override in plan["set"] for word in ("--set", override)]
    return shlex.join([*words, "--seeds", str(cell.seed), "--only", f"{cell.group}/{cell.label}"])


def merged(plan: dict[str, Any], results: Path) -> dict[str, Any]:
    """Return the plan that was published earlier with the cells of this one; exit if those have another setting.

    The configurations decide, not the overrides: defaults of the command may have changed in between.
    """
    if not (results / layout.PLAN).exists():
        return plan
    before = json.loads((results / layout.PLAN).read_text(encoding="utf-8"))
    old, new = (_settings(each) for each in (before, plan))
    if any(before.get(key) != plan.get(key) for key in KIND) or any(old[at] != new[at] for at in old.keys() & new):
        sys.exit(f"{results}: holds runs of another setting; give another --name, or remove it first")
    known = {row["out"] for row in before["cells"]}
    return {**before, "cells": [*before["cells"], *(row for row in plan["cells"] if row["out"] not in known)]}


def _settings(plan: dict[str, Any]) -> dict[tuple[str, str], Config]:
    """Return the configuration of each group and label but for the seed, with today's defaults for newer keys."""
    return {
        (row["group"], row["label"]): config_from({**row["config"], "seed": 0}, row["out"]) for row in plan["cells"]
    }


def publish(run: Path, commit: str, name: str | None = None, made_by: str | None = None, root: Path = ROOT) -> Path:
    """Copy the complete cells, then write the table and the page; return the results directory."""
    plan, cells = planned_cells(run)
    results = root / "results" / (name or name_of(plan))
    shown = [cell for cell in cells if is_shown(plan["title"], cell)]
    if not shown:
        sys.exit(f"{run}: no cell is complete yet")
    whole = merged(plan, results)
    source = results / "provenance.json"
    provenance = json.loads(source.read_text(encoding="utf-8")) if source.exists() else {}
    for cell in shown:
        place, rounds = str(cell.out.relative_to(run)), len(cell.lines)
        if place in provenance and len(read_lines(results / place / layout.METRICS)) >= rounds:
            continue  # more rounds are published of a screen that was started again from its first round
        if len(read_lines(cell.out / layout.PROBABILITIES)) < rounds:
            continue  # its last line is being written
        (results / place).mkdir(parents=True, exist_ok=True)
        for file in KEPT:
            shutil.copyfile(cell.out / file, results / place / file)
        written = read_object(cell.out / layout.ENVIRONMENT)
        provenance[place] = {"made by": made_by or command_of(plan, cell), "commit": commit, **written}
    write_whole(source, (json.dumps(provenance, indent=2) + "\n").encode())
    whole["cells"] = [row for row in whole["cells"] if row["wanted"] or row["out"] in provenance]
    write_whole(results / layout.PLAN, (json.dumps(whole, indent=2) + "\n").encode())
    write_reproduction(whole, planned_cells(results)[1], results)
    page, mark = page_of(plan, root), re.escape(results.name)
    marked = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    text, found = marked.subn(lambda match: match[1] + tables(results) + match[2], page.read_text(encoding="utf-8"))
    if found:
        page.write_text(text, encoding="utf-8")
    else:
        print(f"{page.name} has no marks for it; add: <!-- {results.name} --> and <!-- /{results.name} -->")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="directory that isfl reproduce wrote")
    parser.add_argument("commit", help="commit whose code made the runs")
    parser.add_argument("--name", help="name of the directory in results/ (needed with --set overrides)")
    parser.add_argument("--made-by", help="command that made the runs, if it was not isfl reproduce")
    given = parser.parse_args()
    print(publish(given.run, given.commit, given.name, given.made_by))
