"""What was measured of each client, round by round: accuracy on its own data, and how far its model moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isfl.report.numbers import number
from isfl.report.reading import FoundRun

MEASURES = ("client_accuracy", "client_update_norm", "client_drift")
"""Lists of a line of metrics with one number per client."""
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
    if not isinstance(values, list):
        return {}
    return {k: float(value) for k, value in enumerate(values) if number(value) is not None}
