"""CSV tables of numbers, with or without a header, with or without names of the rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isfl.errors import UserError

SEPARATORS = (",", ";", "\t")
NAME_HEADINGS = {"", "client", "clients", "client_id", "client id", "id", "index", "name", "node", "site"}
"""Headings of a first column that holds names, even where the names are numbers."""
FEWEST_NUMBERS = 3
"""Consecutive numbers are taken for names if there are at least this many."""


@dataclass(frozen=True)
class Table:
    """Cells as text, with their places in the file."""

    file: str
    cells: tuple[tuple[str, ...], ...]
    row_numbers: tuple[int, ...]
    """As a spreadsheet shows them, from 1."""
    row_names: tuple[str, ...] | None
    column_names: tuple[str, ...] | None
    notes: tuple[str, ...] = ()

    def place(self, row: int, column: int) -> str:
        """Return the place of a cell for an error message."""
        name = f" ({self.column_names[column]})" if self.column_names else ""
        return f"{self.file}: row {self.row_numbers[row]}, column {column + 1 + (self.row_names is not None)}{name}"


def read_table(file: Path) -> Table:
    """Read a table with at least one row, or raise a `UserError` for the first thing that is wrong."""
    rows = _without_empty_ends([(i, cells) for i, cells in enumerate(_rows(file), start=1) if cells])
    if not rows:
        raise UserError(f"{file}: is empty; write one row per client, one column per class")
    first, width = rows[0][0], len(rows[0][1])
    for number, cells in rows:
        if len(cells) != width:
            raise UserError(
                f"{file}: row {number} has {len(cells)} cells where row {first} has {width}; make them equal"
            )
    notes: list[str] = []
    header = rows[0][1] if _is_header(rows[0][1], len(rows), notes, first) else None
    body = rows[1:] if header else rows
    if not body:
        raise UserError(f"{file}: row {first} is a header and no row follows it; write one row per client")
    named = width > 1 and _has_names(header, [cells for _, cells in body], notes)
    return Table(
        file=str(file),
        cells=tuple(tuple(cells[named:]) for _, cells in body),
        row_numbers=tuple(number for number, _ in body),
        row_names=tuple(_name(cells[0]) for _, cells in body) if named else None,
        column_names=tuple(map(_name, header[named:])) if header else None,
        notes=tuple(notes),
    )


def number(cell: str) -> float | None:
    """Return the value of a cell, or None if it is not a number."""
    try:
        return float(cell)
    except ValueError:
        return None


def _rows(file: Path) -> list[list[str]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(
            f"{file}: no such file; give a CSV file with one row per client, one column per class"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{file}: is not text in UTF-8; save it as a CSV file in UTF-8") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    head = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(SEPARATORS, key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows: list[list[str]] = []
    try:
        for cells in reader:
            # A line of separators is a row of missing values, a line of nothing is no row.
            rows.append([cell.strip() for cell in cells] if len(cells) > 1 or "".join(cells).strip() else [])
    except csv.Error as error:
        raise UserError(f"{file}: row {len(rows) + 1} is not valid CSV ({error}); look for quotes left open") from None
    return rows


def _without_empty_ends(rows: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Remove empty rows at the end and an empty last column, which spreadsheets leave behind."""
    while rows and not any(rows[-1][1]):
        rows = rows[:-1]
    if rows and all(len(cells) > 1 and not cells[-1] for _, cells in rows):
        return [(i, cells[:-1]) for i, cells in rows]
    return rows


def _name(cell: str) -> str:
    """Return a name on one line, without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in cell).split())


def _is_header(cells: Sequence[str], rows: int, notes: list[str], position: int) -> bool:
    """Whether the first row has no number after its first cell, or only consecutive ones: classes 0, 1, 2, ..."""
    values = cells[1:] or cells
    if all(number(cell) is None for cell in values) and any(values):
        return True
    corner = cells[0].lower() in NAME_HEADINGS
    counting = values if corner else cells
    if rows > 1 and _count_up(counting) and (corner or len(counting) >= FEWEST_NUMBERS):
        if not corner:
            notes.append(f"row {position} ({', '.join(cells[:3])}, ...) is read as names of the classes, not as counts")
        return True
    return False


def _has_names(header: Sequence[str] | None, body: Sequence[Sequence[str]], notes: list[str]) -> bool:
    """Whether most first cells are words, or all are consecutive numbers, or the header says so."""
    firsts = [cells[0] for cells in body]
    if header is not None and header[0].lower() in NAME_HEADINGS:
        return True
    if 2 * sum(bool(cell) and number(cell) is None for cell in firsts) > len(firsts):
        return True
    if len(firsts) >= FEWEST_NUMBERS and _count_up(firsts):
        notes.append(f"column 1 ({', '.join(firsts[:3])}, ...) is read as names of the clients, not as counts")
        return True
    return False


def _count_up(cells: Sequence[str]) -> bool:
    """Whether the cells are 0, 1, 2, ... or 1, 2, 3, ..."""
    return any(list(cells) == [str(i + start) for i in range(len(cells))] for start in (0, 1))
