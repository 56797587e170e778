"""Tables of results: plain records, and the same as a pandas DataFrame where pandas is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from isfl.lines import CLIENT_MEASURES
from isfl.report.reading import flat

if TYPE_CHECKING:
    import pandas

Record = dict[str, Any]
"""One row of a table: plain values under plain keys."""


def metrics_record(line: Mapping[str, Any]) -> Record:
    """Return a line of `metrics.jsonl` without groups: `{"seconds": {"wall": 1}}` becomes `{"seconds.wall": 1}`.

    Numbers by client stay together.
    """
    record: Record = {}
    for key, value in line.items():
        record |= {key: value} if key in CLIENT_MEASURES else flat(value, key)
    return record


def table(records: Sequence[Record]) -> pandas.DataFrame | list[Record]:
    """Return a DataFrame with one row per record if pandas is installed, else the records themselves."""
    if find_spec("pandas") is None:
        return list(records)
    import pandas

    return pandas.DataFrame(records)
