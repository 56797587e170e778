"""The page: one file with its data, its style and its script inside, and nothing from anywhere else."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from isfl import __version__, layout
from isfl.errors import UserError
from isfl.files import write_whole
from isfl.report.content import content_of
from isfl.report.reading import FoundRun, find_runs

SCRIPTS = (
    "dom",
    "table",
    "charts",
    "heatmap",
    "water",
    "clients",
    "confusion",
    "differences",
    "single",
    "several",
    "main",
)
"""In the order they build on each other."""


def write_report(paths: Sequence[Path], out: Path) -> tuple[list[FoundRun], list[str]]:
    """Write the page of all runs at or below these paths; return them, and a line about each that shows nothing."""
    found, refused = find_runs(paths)
    write_page(content_of(found, refused), out)
    return found, refused


def write_page(content: dict[str, Any], out: Path) -> Path:
    """Write the page to a file, complete or not at all."""
    if out.is_dir():
        raise UserError(f"{out}: is a directory; give the file to write, for instance {out / layout.REPORT}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, page(content).encode())
    except OSError as error:
        raise UserError(f"{out}: the report cannot be written ({error.strerror})") from None
    return out


def page(content: dict[str, Any], live: str | None = None) -> str:
    """Return the page as HTML. With `live`, an address of the same server, it asks there for newer content."""
    runs = content["runs"]
    title = f"{runs[0]['label']} · {runs[0]['name']}" if len(runs) == 1 else f"{len(runs)} runs"
    return Template(_asset("page.html")).substitute(
        TITLE=html.escape(f"isfl: {title}"),
        STYLE=_asset("page.css"),
        SCRIPT="\n".join(_asset(f"{name}.js") for name in SCRIPTS),
        DATA=as_json(content).replace("<", "\\u003c"),
        VERSION=__version__,
        LIVE=f' data-live="{html.escape(live)}"' if live else "",
        CONNECT="'self'" if live else "'none'",
    )


def as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _asset(name: str) -> str:
    return (files("isfl.report") / "page" / name).read_text(encoding="utf-8")
