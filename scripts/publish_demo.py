"""Take a finished `isfl demo --out DIR` over into `results/demo` and the README, with its provenance.

    isfl demo --out runs/demo && python scripts/publish_demo.py runs/demo

Run it on a clean checkout: the commit it writes down is the one the numbers came from.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "demo"
MARKED = re.compile(r"(<!-- demo-table -->\n).*?(<!-- /demo-table -->)", re.DOTALL)


def provenance(run: Path) -> dict[str, object]:
    environment = json.loads((run / "fedavg/seed-0/run.json").read_text(encoding="utf-8"))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {"command": "isfl demo", "commit": commit.stdout.strip(), **environment}


def readme_table(summary: str, source: dict[str, object]) -> str:
    machine, versions = source["machine"], source["versions"]
    assert isinstance(machine, dict) and isinstance(versions, dict)
    origin = (
        f"`{source['command']}` at commit `{str(source['commit'])[:10]}`, {machine['processor']}, "
        f"{machine['cpus']} cores, torch {versions['torch']}; the runs are reproducible, the seconds are not."
    )
    return f"{summary}\n{origin}\n"


def publish(run: Path) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in ("summary.json", "summary.md", "comparison.png"):
        shutil.copyfile(run / name, RESULTS / name)
    source = provenance(run)
    (RESULTS / "provenance.json").write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
    readme = ROOT / "README.md"
    table = readme_table((RESULTS / "summary.md").read_text(encoding="utf-8"), source)
    text = MARKED.sub(lambda match: match[1] + table + match[2], readme.read_text(encoding="utf-8"))
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
