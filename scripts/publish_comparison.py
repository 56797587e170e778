"""Copy the tables of finished runs to `results/NAME` with their provenance, and update the page that shows them.

    isfl demo --out runs/demo && python scripts/publish_comparison.py runs/demo demo "isfl demo" [COMMIT]

    isfl reproduce attacks --seeds 0,1,2 --out runs/attacks
    python scripts/publish_comparison.py runs/attacks attacks "isfl reproduce attacks --seeds 0,1,2" [COMMIT]

COMMIT is the commit whose code made the runs; the default is that of this checkout, which should be clean.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

from isfl import layout
from isfl.files import read_object

ROOT = Path(__file__).parent.parent
PAGES = {
    "demo": ROOT / "README.md",
    "variants": ROOT / "docs/results.md",
    "attacks": ROOT / "docs/robustness.md",
    "stragglers": ROOT / "docs/scaling.md",
}
"""The page of a comparison; its table is between the marks `<!-- NAME-table -->` and `<!-- /NAME-table -->`."""

FILES = {"attacks": ("attacks.json", "attacks.md", "attacks.png")}
"""The files for programs, for people and the picture, where they are not those of `isfl compare`."""
COMPARED = (layout.SUMMARY, layout.SUMMARY_TEXT, layout.COMPARISON)

PAIRED = {"variants": ("isfl", "isfl-target-first")}
"""The rows that all rows of a comparison are compared with, seed by seed."""


def provenance(run: Path, command: str, commit: str | None) -> dict[str, object]:
    environment = read_object(min(run.rglob(f"seed-0/{layout.ENVIRONMENT}")))
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {"command": command, "commit": commit or head.stdout.strip(), **environment}


def section(results: Path) -> str:
    """Return the table and its provenance, as the page has them."""
    source = json.loads((results / "provenance.json").read_text(encoding="utf-8"))
    machine, versions = source["machine"], source["versions"]
    origin = (
        f"`{source['command']}` at commit `{str(source['commit'])[:10]}`, {machine['processor']}, "
        f"{machine['cpus']} cores, torch {versions['torch']}; the runs are reproducible; measured times are not."
    )
    table = (results / FILES.get(results.name, COMPARED)[1]).read_text(encoding="utf-8")
    text = table.removeprefix(f"# {results.name}\n\n").replace("## ", "### ") + f"\n{origin}\n"
    bases = PAIRED.get(results.name, ())
    return "\n".join([text, *(paired(results, base) for base in bases)])


def paired(results: Path, base: str) -> str:
    """Return a table that compares each row with the row `base` on the same seeds."""
    rows = json.loads((results / layout.SUMMARY).read_text(encoding="utf-8"))
    reference = next(row["standard_by_seed"] for row in rows if row["scheme"] == base)
    lines = [f"| against {base}, seed by seed | D_S | ahead on |", "|---|---|---|"]
    for row in rows:
        if row["scheme"] != base:
            gaps = [ours - theirs for ours, theirs in zip(row["standard_by_seed"], reference, strict=True)]
            ahead = f"{sum(gap > 0 for gap in gaps)} of {len(gaps)}"
            lines.append(f"| {row['scheme']} | {mean(gaps):+.1f} ± {stdev(gaps):.1f} | {ahead} |")
    return "\n".join(lines) + "\n"


def publish(run: Path, name: str, command: str, commit: str | None = None) -> None:
    results, page = ROOT / "results" / name, PAGES[name]
    results.mkdir(parents=True, exist_ok=True)
    for file in FILES.get(name, COMPARED):
        shutil.copyfile(run / file, results / file)
    source = json.dumps(provenance(run, command, commit), indent=2) + "\n"
    (results / "provenance.json").write_text(source, encoding="utf-8")
    marked = re.compile(rf"(<!-- {name}-table -->\n).*?(<!-- /{name}-table -->)", re.DOTALL)
    text = marked.sub(lambda match: match[1] + section(results) + match[2], page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]), *sys.argv[2:5])
