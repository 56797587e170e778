"""Take the finished cells of an `isfl reproduce` directory over into `results/`, with their provenance.

    isfl reproduce table2 --scale quick --out runs/table2-quick
    python scripts/publish_reproduction.py runs/table2-quick COMMIT ["how the runs were made"]

Cells add up: those already in `results/` stay, and the table (also the one in `docs/results.md`) is drawn anew from
all of them; what is already published keeps its provenance. COMMIT is the one whose code made the runs; say how they
were made if it was not by that command.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from isfl.experiment.cells import planned_cells
from isfl.files import PLAN
from isfl.report.reproduction import write_reproduction

ROOT = Path(__file__).parent.parent
KEPT = ("config.json", "run.json", "split.json", "metrics.jsonl", "probabilities.jsonl")


def tables(results: Path) -> str:
    """The tables of a published experiment, as they stand in `docs/results.md`."""
    plan, _ = planned_cells(results)
    text = (results / f"{plan['title']}.md").read_text(encoding="utf-8")
    return text.removeprefix(f"# {plan['title']}\n\n").replace("## ", "### ")


def publish(run: Path, commit: str, made_by: str | None = None) -> Path:
    plan, cells = planned_cells(run)
    results = ROOT / "results" / f"{plan['title']}-{plan['scale']}"
    results.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run / PLAN, results / PLAN)
    source = results / "provenance.json"
    provenance = json.loads(source.read_text(encoding="utf-8")) if source.exists() else {}
    for cell in cells:
        name = str(cell.out.relative_to(run))
        if not cell.complete or name in provenance:
            continue
        (results / name).mkdir(parents=True, exist_ok=True)
        for file in KEPT:
            shutil.copyfile(cell.out / file, results / name / file)
        written = json.loads((cell.out / "run.json").read_text(encoding="utf-8"))
        command = f"isfl reproduce {plan['title']} --scale {plan['scale']} --only {cell.group}/{cell.label}"
        provenance[name] = {"made by": made_by or command, "commit": commit, **written}
    source.write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")
    write_reproduction(plan, planned_cells(results)[1], results)
    page, mark = ROOT / "docs" / "results.md", results.name
    marked = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    text = marked.sub(lambda match: match[1] + tables(results) + match[2], page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
    return results


if __name__ == "__main__":
    print(publish(Path(sys.argv[1]), *sys.argv[2:4]))
