"""Write the tables of `make bench`, each with its provenance, into the pages that have marks for them.

make bench && python scripts/publish_performance.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.run import table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "performance"
PAGES = tuple(ROOT / "docs" / name for name in ("performance.md", "scaling.md", "secure-aggregation.md"))


def section(result: dict[str, Any], part: str) -> str:
    """Return one part of the benchmark as the page has it."""
    machine = result["machine"]
    command = f"make bench BENCH='--only {part}'" + (" QUICK=1" if result["quick"] else "")
    origin = (
        f"`{command}` at commit `{result['commit'][:10]}`, {machine['cpu']}, {machine['cores']} cores, "
        f"load average at the start {machine['load_average_at_start'][0]:.1f}."
    )
    lines = [f"{result['title']}:", table(result["rows"]), *result.get("notes", []), origin]
    lines += [f"**Missed:** {line}." for line in result["missed"]]
    return "\n\n".join(lines) + "\n"


def publish() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for file in sorted(RESULTS.glob("*.json")):
            content = section(json.loads(file.read_text(encoding="utf-8")), file.stem)
            opening, closing = f"<!-- {file.stem} -->\n", f"<!-- /{file.stem} -->"
            before, found, rest = text.partition(opening)
            if found:
                text = before + opening + content + closing + rest.partition(closing)[2]
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    publish()
