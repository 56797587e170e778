"""Class counts of a federation, and Lipschitz values for it, from CSV files and options."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isfl.data.tables import Table, number, read_table
from isfl.errors import UserError
from isfl.theory.arrays import Array

LARGEST_COUNT = 2.0**53
"""Larger whole numbers are not exact in float64."""
LIPSCHITZ_RANGE = (1e-50, 1e50)
"""Squares of values in this range, and their ratios, stay within float64."""
MISSING = ("", "na", "n/a", "nan", "null", "none", "-")
SHOWN = 3


@dataclass(frozen=True)
class ClassCounts:
    """The number of samples of each class that each client holds; no client is empty."""

    counts: Array
    """(K, C)."""
    clients: tuple[str, ...]
    classes: tuple[str, ...]
    kept: tuple[int, ...]
    """Positions of these clients among the given ones."""
    given: int
    """Number of clients in the input, empty ones included."""
    notes: tuple[str, ...] = ()
    """What a reader should know: clients left out, classes that no client holds."""


def read_counts(file: Path) -> ClassCounts:
    """Read a CSV file with one row per client and one column per class; leave empty clients out, with a note."""
    table = read_table(file)
    clients = _names(table.row_names, len(table.cells))
    classes = _names(table.column_names, len(table.cells[0]))
    places = tuple(
        f"{table.file}: row {row}" + (f" ({name})" if table.row_names else "")
        for row, name in zip(table.row_numbers, clients, strict=True)
    )
    return federation_of(_values(table, _count), clients, classes, places, table.notes)


def federation_of(
    counts: Array, clients: Sequence[str], classes: Sequence[str], places: Sequence[str], notes: Sequence[str] = ()
) -> ClassCounts:
    """Return the counts without empty clients; `places` is what notes call the clients."""
    kept = np.flatnonzero(counts.sum(axis=1) > 0).tolist()
    if not kept:
        raise UserError(f"{places[0]} has no samples, nor has any other client; at least one needs some")
    empty = [places[k] for k in range(len(counts)) if counts[k].sum() == 0]
    unheld = [classes[i] for i in np.flatnonzero(counts.sum(axis=0) == 0).tolist()]
    all_notes = [*notes, *(f"{place} has no samples: left out" for place in empty[:SHOWN])]
    if len(empty) > SHOWN:
        all_notes.append(f"{len(empty) - SHOWN} more clients without samples are left out")
    if unheld:
        more = f" and {len(unheld) - SHOWN} more" if len(unheld) > SHOWN else ""
        all_notes.append(f"no client holds a sample of class {', '.join(unheld[:SHOWN])}{more}")
    return ClassCounts(
        counts=counts[kept],
        clients=tuple(clients[k] for k in kept),
        classes=tuple(classes),
        kept=tuple(kept),
        given=len(counts),
        notes=tuple(all_notes),
    )


def read_lipschitz(given: str, federation: ClassCounts) -> Array:
    """Return (K, C) values from `1.5,2,0.7` (for all clients) or a CSV file with one row, or one per client.

    NaN stands for an unknown value.
    """
    table = Table("--lipschitz", (values,), (1,), None, None) if (values := _listed(given)) else read_table(Path(given))
    rows, width = len(table.cells), len(table.cells[0])
    if width != len(federation.classes):
        raise UserError(f"{table.file}: has {width} values in a row; give {len(federation.classes)}, one per class")
    if rows not in (1, federation.given):
        raise UserError(
            f"{table.file}: has {rows} rows; give one for all clients, or {federation.given}, one per client"
        )
    names = table.column_names
    if names and names != federation.classes and sorted(names) == sorted(federation.classes):
        raise UserError(f"{table.file}: its classes are in another order than those of the counts; use the same order")
    lipschitz = _values(table, _lipschitz)
    return np.repeat(lipschitz, len(federation.kept), axis=0) if rows == 1 else lipschitz[list(federation.kept)]


def _listed(given: str) -> tuple[str, ...]:
    """Return the values of a comma-separated list; none if `given` is the name of a file."""
    values = tuple(cell.strip() for cell in given.split(","))
    numbers = all(number(cell) is not None or cell.lower() in MISSING for cell in values)
    return values if numbers or (len(values) > 1 and not given.lower().endswith(".csv")) else ()


def _names(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """Return the given names; a missing name becomes its position, from 0."""
    names = given or [""] * count
    return tuple(name or str(i) for i, name in enumerate(names))


def _values(table: Table, check: Callable[[str], float]) -> Array:
    """Return the cells as numbers; `check` converts one, or raises `ValueError` with what is wrong with it."""
    values = np.empty((len(table.cells), len(table.cells[0])))
    for k, row in enumerate(table.cells):
        for i, cell in enumerate(row):
            try:
                values[k, i] = check(cell)
            except ValueError as problem:
                raise UserError(f"{table.place(k, i)}: {problem}") from None
    return values


def _count(cell: str) -> float:
    value = number(cell)
    if cell.lower() in MISSING:
        raise ValueError("is missing; write 0 where a client has no sample of a class")
    if value is None or not math.isfinite(value):
        raise ValueError(
            f"found {_short(cell)}; write a whole number such as 120 (names go into the first row or column)"
        )
    if value < 0 or value != math.floor(value):
        raise ValueError(f"found {_short(cell)}; a count is a whole number, 0 or more")
    if value > LARGEST_COUNT:
        raise ValueError(f"found {_short(cell)}; a count is at most 2^53")
    return value


def _lipschitz(cell: str) -> float:
    low, high = LIPSCHITZ_RANGE
    value = math.nan if cell.lower() in MISSING else number(cell)
    if value is None or not (math.isnan(value) or low <= value <= high):
        raise ValueError(f"found {_short(cell)}; a Lipschitz value is a number above 0 (empty or nan where unknown)")
    return value


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 24 else f"{cell[:23]}…")
