"""The user's own tables: features and labels in CSV files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isfl.data.given import natural_source, pooled_source
from isfl.data.parts import Arrays
from isfl.data.sources.base import DataSettings, NamedSource, Source, required_path
from isfl.data.tables import number
from isfl.errors import UserError

LABEL, CLIENT = "label", "client"


@dataclass(frozen=True)
class Table:
    """The rows of a file; `clients` is empty if it has no such column."""

    file: Path
    columns: tuple[str, ...]
    """Names of the features."""
    features: np.ndarray
    labels: np.ndarray
    """As text."""
    clients: np.ndarray


def csv_files(settings: DataSettings) -> Source:
    """Your own tables: data.path with train.csv and test.csv, columns label, client (optional) and features."""
    path = required_path(settings)
    train, test = read_features(path / "train.csv"), read_features(path / "test.csv")
    if test.columns != train.columns:
        raise UserError(f"{test.file}: its features are {', '.join(test.columns)}, not {', '.join(train.columns)}")
    classes = None if _are_numbers(train.labels) else tuple(np.unique(train.labels).tolist())
    train_labels, test_labels = (
        table.labels.astype(np.int64) if classes is None and _are_numbers(table.labels) else table.labels
        for table in (train, test)
    )
    tested = Arrays(test.features, test_labels, str(test.file))
    if not len(train.clients):
        return pooled_source(Arrays(train.features, train_labels, str(train.file)), tested, classes, str(path))
    clients = {}
    for name in dict.fromkeys(train.clients.tolist()):
        rows = train.clients == name
        clients[name] = Arrays(train.features[rows], train_labels[rows], f"{train.file}: client {name!r}")
    return natural_source(clients, [tested], classes, str(path))


def read_features(file: Path) -> Table:
    """Read a table with a header; every feature is a number."""
    features: list[list[float]] = []
    words: dict[str, list[str]] = {LABEL: [], CLIENT: []}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, strict=True)
            header = [name.strip() for name in next(rows, [])]
            if LABEL not in header:
                raise UserError(f"{file}: its first line must name the columns, one of them {LABEL!r}; found {header}")
            for cells in filter(None, rows):
                features.append(_row(header, cells, words, f"{file}: line {rows.line_num}"))
    except FileNotFoundError:
        raise UserError(f"{file}: no such file; data.path needs train.csv and test.csv") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{file}: cannot be read as CSV in UTF-8 ({error})") from None
    if not features:
        raise UserError(f"{file}: has no rows below its first line")
    columns = tuple(name for name in header if name not in words)
    return Table(file, columns, np.array(features, np.float32), np.array(words[LABEL]), np.array(words[CLIENT]))


def _row(header: Sequence[str], cells: Sequence[str], words: dict[str, list[str]], where: str) -> list[float]:
    """Return the features of a row; its label and client go to `words`."""
    if len(cells) != len(header):
        raise UserError(f"{where} has {len(cells)} cells where the first line has {len(header)}")
    features = []
    for name, cell in zip(header, map(str.strip, cells), strict=True):
        if name in words:
            words[name].append(cell)
        elif (value := number(cell)) is None:
            raise UserError(f"{where}, column {name!r} is {cell!r}; features must be numbers")
        else:
            features.append(value)
    return features


def _are_numbers(labels: np.ndarray) -> bool:
    return all(label.isascii() and label.isdigit() for label in np.unique(labels).tolist())


CSV = NamedSource("csv", csv_files)
