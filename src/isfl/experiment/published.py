"""The numbers that the paper published, from `presets/published.json`.

An experiment has a table of settings, a setting has a table of rows, and a row is `[D_S, D_G]` in percent or a table
with `accuracy` (D_S), `top5` and `speedup`. A figure that shows a table's cells names that table instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any

from isfl.errors import UserError

Row = Mapping[str, float]
"""`standard`, `global`, `top5`, `speedup`, as far as they were published."""
Rows = Mapping[str, Mapping[str, Row]]
"""Setting -> label -> its numbers."""

NAMES = {"accuracy": "standard", "top5": "top5", "speedup": "speedup"}
FILE = "presets/published.json"


@dataclass(frozen=True)
class Published:
    """Where the numbers are from, and the numbers of every experiment."""

    source: str
    experiments: Mapping[str, Rows]

    def rows(self, experiment: str) -> Rows:
        """Return the published numbers of an experiment; none if there are none."""
        return self.experiments.get(experiment, {})


@cache
def published() -> Published:
    """Return the numbers of the paper."""
    return published_in(published_text(), FILE)


def published_text() -> str:
    """Return the file that comes with the package."""
    return resources.files("isfl.experiment").joinpath(FILE).read_text(encoding="utf-8")


def published_in(text: str, name: str) -> Published:
    """Return the numbers in a file of this form; the first mistake is a `UserError` that names its place."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: not valid JSON ({error})") from None
    experiments = _table(content, name)
    source = experiments.pop("source", None)
    if not isinstance(source, str):
        raise UserError(f"{name}: source: found {source!r:.60}; write where the numbers are from, as text")
    shown = {key: entry for key, entry in experiments.items() if isinstance(entry, str)}
    numbers = {key: _rows(entry, f"{name}: {key}") for key, entry in experiments.items() if key not in shown}
    for key, table in shown.items():
        if table not in numbers:
            raise UserError(f"{name}: {key}: found {table!r:.60}; name one of {', '.join(numbers)}")
    return Published(source, {**numbers, **{key: numbers[table] for key, table in shown.items()}})


def _rows(entry: Any, place: str) -> Rows:
    groups = {group: _table(rows, f"{place}: {group}") for group, rows in _table(entry, place).items()}
    return {
        group: {label: _row(row, f"{place}: {group}: {label}") for label, row in rows.items()}
        for group, rows in groups.items()
    }


def _row(entry: Any, place: str) -> Row:
    """Return the numbers of a row by their names."""
    if isinstance(entry, list):
        if len(entry) != 2:
            raise UserError(f"{place}: has {len(entry)} numbers; write [D_S, D_G] in percent")
        return {key: _number(value, place) for key, value in zip(("standard", "global"), entry, strict=True)}
    row = _table(entry, place)
    if unknown := sorted(row.keys() - NAMES.keys()):
        raise UserError(f"{place}: unknown key {unknown[0]!r:.60}; use {', '.join(NAMES)}")
    return {NAMES[key]: _number(value, f"{place}: {key}") for key, value in row.items()}


def _table(entry: Any, place: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise UserError(f"{place}: found {entry!r:.60}; write a table")
    return dict(entry)


def _number(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9 or not isfinite(value):
        raise UserError(f"{place}: found {value!r:.60}; write a number")
    return float(value)
