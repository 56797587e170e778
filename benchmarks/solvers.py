"""What the solvers cost: CPU seconds for 10,000 clients of 100 classes, and how they grow with both.

    python benchmarks/solvers.py [--quick] [--json FILE]

Ends with code 1 where a solver needs more than its limit. CPU time, not wall time: a busy machine says nothing
about a solver.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import get_args

import numpy as np

from isfl.theory import sampling_probabilities
from isfl.theory.probabilities import SolverName

CLIENTS, CLASSES = 10_000, 100
LIMITS: dict[SolverName, float] = {"paper": 1.0, "exact": 5.0}
"""CPU seconds for `CLIENTS` x `CLASSES`."""
GROWTH = [(1_000, 10), (1_000, 100), (1_000, 1_000), (10_000, 10), (100_000, 10)]


def seconds(solver: SolverName, clients: int, classes: int, repeats: int) -> float:
    """The median CPU time of one call, on Dirichlet label mixes and random Lipschitz values."""
    rng = np.random.default_rng(0)
    local = rng.dirichlet(np.full(classes, 0.5), size=clients)
    lipschitz = rng.lognormal(0.0, 0.7, size=(clients, classes))
    taken = []
    for _ in range(repeats):
        begin = time.process_time()
        sampling_probabilities(local.mean(axis=0), local, lipschitz, floor=0.05, solver=solver)
        taken.append(time.process_time() - begin)
    return statistics.median(taken)


def measure(quick: bool) -> dict[str, object]:
    """CPU seconds of both solvers, one row a size; `passed` says whether both keep their limit at the largest."""
    repeats = 1 if quick else 3
    rows = [
        {"clients": k, "classes": c, **{solver: seconds(solver, k, c, repeats) for solver in get_args(SolverName)}}
        for k, c in [*GROWTH, (CLIENTS, CLASSES)]
    ]
    passed = all(rows[-1][solver] < limit for solver, limit in LIMITS.items())
    return {"unit": "CPU seconds", "repeats": repeats, "limits": LIMITS, "sizes": rows, "passed": passed}


def table(result: dict[str, object]) -> str:
    sizes, limits = result["sizes"], result["limits"]
    assert isinstance(sizes, list) and isinstance(limits, dict)
    lines = [f"{'clients':>9} {'classes':>9} {'paper':>9} {'exact':>9}   CPU seconds"]
    lines += [f"{r['clients']:>9,} {r['classes']:>9,} {r['paper']:>9.3f} {r['exact']:>9.3f}" for r in sizes]
    limit = f"{'limit':>9} {'':>9} {limits['paper']:>9.3f} {limits['exact']:>9.3f}"
    return "\n".join([*lines, f"{limit}   {'kept' if result['passed'] else 'BROKEN'}"])


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU time of the solvers")
    parser.add_argument("--quick", action="store_true", help="one run of each size instead of the median of three")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    arguments = parser.parse_args()
    result = measure(arguments.quick)
    print(table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
