"""Copy runs that measured both sides of the bound to `results/bound`, and update the table in `docs/theory.md`.

    isfl run src/isfl/experiment/presets/demo.toml --set diagnostics.bound=true --out runs/bound/adam
    isfl run src/isfl/experiment/presets/demo.toml --set diagnostics.bound=true \\
        --set training.optimizer.kind=sgd --out runs/bound/sgd
    python scripts/publish_bound.py runs/bound COMMIT

COMMIT is the commit whose code made the runs.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from isfl import layout
from isfl.files import read_object
from isfl.lines import read_lines

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results/bound", ROOT / "docs/theory.md"
KEPT = (layout.CONFIG, layout.ENVIRONMENT, layout.METRICS)


def section(results: Path) -> str:
    """Return the table of both sides, for the first and last round of each run, and its provenance."""
    lines = [
        "| run | round | drift: measured / bound | `gradient_square` | bound | `psi` | sampling | bound / measured |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for run in sorted(path.parent for path in results.glob(f"*/{layout.METRICS}")):
        rounds = read_lines(run / layout.METRICS)
        lines += [_row(run.name, line) for line in (rounds[0], rounds[-1])]
    source = json.loads((results / "provenance.json").read_text(encoding="utf-8"))
    machine, commit = source["machine"], source["commit"][:10]
    origin = (
        "The demo's setting with ISFL, Adam (lr 0.001) and plain SGD (lr 0.01): the commands in "
        f"`scripts/publish_bound.py` at commit `{commit}`, {machine['processor']}, {machine['cpus']} cores."
    )
    return "\n".join([*lines, "", origin]) + "\n"


def _row(name: str, line: dict[str, Any]) -> str:
    drift, bound, square = line["drift"], line["bound"], line["gradient_square"]
    return (
        f"| {name} | {line['round']} | {drift['measured']:.3g} / {drift['bound']:.3g} | {square:.3g} | "
        f"{bound['total']:.3g} | {bound['psi']:.3g} | {bound['sampling']:.3g} | {bound['total'] / square:.2g} |"
    )


def publish(runs: Path, commit: str) -> None:
    for run in sorted(path.parent for path in runs.glob(f"*/{layout.METRICS}")):
        (RESULTS / run.name).mkdir(parents=True, exist_ok=True)
        for file in KEPT:
            shutil.copyfile(run / file, RESULTS / run.name / file)
        environment = read_object(run / layout.ENVIRONMENT)
    (RESULTS / "provenance.json").write_text(json.dumps({"commit": commit, **environment}, indent=2) + "\n")
    marked = re.compile(r"(<!-- bound -->\n).*?(<!-- /bound -->)", re.DOTALL)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(marked.sub(lambda match: match[1] + section(RESULTS) + match[2], text), encoding="utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]), sys.argv[2])
