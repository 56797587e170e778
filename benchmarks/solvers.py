"""Cost of the solvers: CPU seconds for 10,000 clients and 100 classes, and growth with both."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from isfl.theory import sampling_probabilities

CLIENTS, CLASSES = 10_000, 100
LIMITS: dict[str, float] = {"paper": 1.0, "exact": 5.0}
"""CPU seconds for `CLIENTS` x `CLASSES`."""
GROWTH = [(1_000, 10), (1_000, 100), (1_000, 1_000), (10_000, 10), (100_000, 10)]


def seconds(solver: str, clients: int, classes: int, repeats: int) -> float:
    """Return the median CPU time of one call, on Dirichlet label mixes and random Lipschitz values."""
    rng = np.random.default_rng(0)
    local = rng.dirichlet(np.full(classes, 0.5), size=clients)
    lipschitz = rng.lognormal(0.0, 0.7, size=(clients, classes))
    taken = []
    for _ in range(repeats):
        begin = time.process_time()
        sampling_probabilities(local.mean(axis=0), local, lipschitz, floor=0.05, solver=solver)
        taken.append(time.process_time() - begin)
    return statistics.median(taken)


def measure(quick: bool) -> dict[str, Any]:
    repeats = 1 if quick else 3
    sizes = [(k, c, {name: seconds(name, k, c, repeats) for name in LIMITS}) for k, c in [*GROWTH, (CLIENTS, CLASSES)]]
    return {
        "title": "Solvers, CPU seconds for all clients",
        "rows": [
            {"clients": f"{k:,}", "classes": c, **{name: f"{of:.3f}" for name, of in taken.items()}}
            for k, c, taken in sizes
        ],
        "missed": [
            f"{name} takes {sizes[-1][2][name]:.2f} s for {CLIENTS:,} x {CLASSES}; the limit is {limit:g}"
            for name, limit in LIMITS.items()
            if sizes[-1][2][name] >= limit
        ],
    }
