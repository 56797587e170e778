"""Draw the layers of the package and their imports into `docs/pictures/rooms.svg`, from the source.

    python scripts/draw_architecture.py [DIRECTORY]

One row per layer, from pure to practical, with the first sentence of its docstring. A dot means that the layer of the
row imports from the layer of the column. A layer may only import from the layers above it, so every dot is left of the
diagonal; `tests/test_architecture.py` checks that order.
"""

from __future__ import annotations

import ast
import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/isfl"
PICTURE = ROOT / "docs/pictures/rooms.svg"
ROOMS = (
    "errors",
    "files",
    "layout",
    "lines",
    "schema",
    "randomness",
    "theory",
    "kernels",
    "smoothness",
    "sampling",
    "data",
    "models",
    "federation",
    "problem",
    "engines",
    "plotting",
    "experiment",
    "flower",
    "diagnose",
    "report",
    "trackers",
    "api",
    "cli",
)
"""From pure to practical."""

ROW, CELL, TOP, NAME, TEXT = 26, 22, 96, 120, 640
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2937}.name{font-weight:600}.small{fill:#4b5563;font-size:12px}"
    "line{stroke:#d1d5db}circle{fill:#1d4ed8}.self{fill:#e5e7eb}.page{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.small{fill:#9ca3af}line{stroke:#374151}"
    "circle{fill:#93c5fd}.self{fill:#374151}.page{fill:#111827}}"
)


def imports_of(source: str) -> set[str]:
    """Return the modules that a source file names; `from isfl import x` is `isfl.x`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are absolute"
            if node.module == "isfl":
                found.update(f"isfl.{alias.name}" for alias in node.names)
            else:
                found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found - {"isfl.__version__"}


def files_of(room: str) -> list[Path]:
    """Return the source files of a layer: one module, or all of a package."""
    module = SOURCE / f"{room}.py"
    return [module] if module.exists() else sorted((SOURCE / room).rglob("*.py"))


def summary(room: str) -> str:
    """Return the first sentence of a layer's docstring."""
    module = SOURCE / f"{room}.py"
    file = module if module.exists() else SOURCE / room / "__init__.py"
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[^.]\.)\s", first)[0]
    return sentence.replace("`", "").removesuffix(".")


def imported_rooms(room: str) -> set[str]:
    """Return the other layers that a layer imports from."""
    names = {name for file in files_of(room) for name in imports_of(file.read_text(encoding="utf-8"))}
    return {name.split(".")[1] for name in names if name.startswith("isfl.")} - {room}


def picture() -> str:
    """Return the drawing as SVG text."""
    left = NAME + TEXT
    width, height = left + CELL * len(ROOMS) + 24, TOP + ROW * len(ROOMS) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>The layers of isfl and what they import</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="small" x="16" y="{TOP - 14}">layer</text>',
        f'<text class="small" x="{left - 16}" y="{TOP - 14}" text-anchor="end">imports from</text>',
    ]
    for i, room in enumerate(ROOMS):
        x, y = left + CELL * i + CELL // 2, TOP + ROW * i + ROW // 2
        parts += [
            f'<line x1="16" x2="{width - 16}" y1="{y + ROW // 2}" y2="{y + ROW // 2}"/>',
            f'<text class="name" x="16" y="{y + 4}">{escape(room)}</text>',
            f'<text class="small" x="{NAME}" y="{y + 4}">{escape(shortened(summary(room)))}</text>',
            f'<text class="small" transform="translate({x + 4} {TOP - 6}) rotate(-60)">{escape(room)}</text>',
            f'<rect class="self" x="{x - 6}" y="{y - 6}" width="12" height="12" rx="2"/>',
        ]
        parts += [
            f'<circle cx="{left + CELL * ROOMS.index(other) + CELL // 2}" cy="{y}" r="5"/>'
            for other in sorted(imported_rooms(room), key=ROOMS.index)
        ]
    return "\n".join([*parts, "</svg>", ""])


def shortened(text: str, most: int = 100) -> str:
    """Return the text, cut at a word if it is too long for its column."""
    return text if len(text) <= most else text[: text.rfind(" ", 0, most)].rstrip(",:;") + " ..."


if __name__ == "__main__":
    file = Path(sys.argv[1]) / PICTURE.name if len(sys.argv) > 1 else PICTURE
    file.write_text(picture(), encoding="utf-8")
    print(file)
