"""What was measured of each client, round by round: accuracy on its own data, and how far its model moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isfl.lines import CLIENT_MEASURES
from isfl.report.numbers import number
from isfl.report.reading import FoundRun

MEASURES = CLIENT_MEASURES
QUANTILES = {"lowest": 0.0, "lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75, "highest": 1.0}


def clients_of(run: FoundRun) -> dict[str, Any]:
    """Return the spread of every measure over clients; None for what was not measured."""
    return {key: _spread(run, key) for key in MEASURES}


def _spread(run: FoundRun, key: str) -> dict[str, Any] | None:
    """Return quantiles and the clients at both ends per round, and every client in the last measured round."""
    rows = [by_client(line, key) for line in run.lines]
    if not any(rows):
        return None
    last = max(i for i, row in enumerate(rows) if row)
    return {
        "quantiles": {
            name: [number(float(np.quantile(list(row.values()), level))) if row else None for row in rows]
            for name, level in QUANTILES.items()
        },
        "ends": {
            "lowest": [min(row, key=row.__getitem__) if row else None for row in rows],
            "highest": [max(row, key=row.__getitem__) if row else None for row in rows],
        },
        "round": run.lines[last]["round"],
        "last": [[client, number(value)] for client, value in rows[last].items()],
    }


def by_client(line: Mapping[str, Any], key: str) -> dict[int, float]:
    """Return the known numbers of a line by client."""
    values = line.get(key)
    if isinstance(values, dict):
        pairs = [(int(k), value) for k, value in values.items() if k.isdecimal()]
    else:
        pairs = list(enumerate(values)) if isinstance(values, list) else []
    return {k: float(value) for k, value in pairs if number(value) is not None}


def last_own_accuracy(run: FoundRun) -> np.ndarray:
    """Return the accuracy of the last evaluated model on the data of each measured client."""
    rows = [by_client(line, "client_accuracy") for line in run.evaluated]
    return np.array(list(next((row for row in reversed(rows) if row), {}).values()), dtype=float)
