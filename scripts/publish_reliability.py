"""Write the tables of `make chaos` and `make fuzz`, each with its provenance, into docs/reliability.md.

Both commands call it at their end.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from benchmarks.run import table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "reliability"
PAGE = ROOT / "docs" / "reliability.md"


def section(result: dict[str, Any], name: str) -> str:
    """Return one table as the page has it."""
    machine = result["machine"]
    origin = (
        f"`{command_of(result, name)}` on {result['date']} at commit `{result['commit'][:10]}`, "
        f"seed {result['seed']}, {result['seconds'] / 60:.0f} minutes, {machine['cpu']}, {machine['cores']} cores, "
        f"load average at the start {machine['load_average_at_start'][0]:.1f}."
    )
    lines = [f"{result['title']}:", table(result["rows"]), *result.get("notes", []), origin]
    lines += [f"**Found:** {line}." for line in result["missed"]]
    return "\n\n".join(lines) + "\n"


def command_of(result: dict[str, Any], name: str) -> str:
    """Return the command that made a result; earlier results do not hold its arguments."""
    target = "fuzz" if name == "fuzz" else "chaos"
    given = result.get("arguments", [] if name == "fuzz" else ["--only", name])
    options = shlex.join(word for word in given if word != "--quick")
    words = ["make", target, "QUICK=1" if result["quick"] else "", f"{target.upper()}='{options}'" if options else ""]
    return " ".join(word for word in words if word)


def publish() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for file in sorted(RESULTS.glob("*.json")):
        content = section(json.loads(file.read_text(encoding="utf-8")), file.stem)
        opening, closing = f"<!-- {file.stem} -->\n", f"<!-- /{file.stem} -->"
        before, found, rest = text.partition(opening)
        assert found, f"{PAGE} has no place for {file.stem}"
        text = before + opening + content + closing + rest.partition(closing)[2]
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    publish()
