"""Write `src/isfl/diagnose/measured.json` from `results/`: the gain of the recommended scheme on every setting.

    python scripts/write_measured_gains.py

`isfl diagnose` predicts from this file. Settings without a run of FedAvg with the same seed are left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from isfl import layout
from isfl.diagnose.evidence import RECOMMENDED, Measured, skew_beyond_chance
from isfl.experiment.cells import Cell, planned_cells
from isfl.experiment.policy import WINNER
from isfl.experiment.standings import REFERENCE, gains
from isfl.files import read_object

ROOT = Path(__file__).parent.parent
FILE = ROOT / "src/isfl/diagnose/measured.json"
SOURCES = {
    "policy-skew-half-published": WINNER,
    "policy-confirm-half-published": WINNER,
    "policy-screen-half-published": WINNER,
    "table2-half-published": RECOMMENDED,
}
"""Directory in `results/` -> the label that the recommended scheme has there."""


def entries(root: Path = ROOT) -> list[Measured]:
    """Return the measured settings, least skewed first."""
    found = []
    for source, label in SOURCES.items():
        if (root / "results" / source).exists():
            cells = planned_cells(root / "results" / source)[1]
            for setting, pair in gains(cells).get(label, {}).items():
                skew = round(_skew(cells, setting, pair.by_seed), 4)
                found.append(Measured(setting, skew, round(pair.mean, 2), pair.seeds, source))
    return sorted(found, key=lambda one: one.skew)


def _skew(cells: Sequence[Cell], setting: str, seeds: Collection[int]) -> float:
    """Return the mean skew of a setting over these seeds; all schemes of a seed have the same split."""
    own = {cell.seed: cell.out for cell in cells if (cell.group, cell.label) == (setting, REFERENCE) and cell.complete}
    counts = [read_object(out / layout.SPLIT)["client_counts"] for seed, out in own.items() if seed in seeds]
    return float(np.mean([skew_beyond_chance(np.array(one, dtype=np.float64)) for one in counts]))


def text(root: Path = ROOT) -> str:
    """Return the content of the file."""
    return json.dumps([asdict(one) for one in entries(root)], indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(FILE.relative_to(ROOT))
