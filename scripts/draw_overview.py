"""Draw the picture of the README from published runs: what clients hold, and how FedAvg, ISFL and our rules learn.

python scripts/draw_overview.py
"""

from __future__ import annotations

from pathlib import Path

from isfl.experiment.cells import Cell, planned_cells
from isfl.plotting import in_print, picture_of
from isfl.report.reading import SEPARATOR, read_run
from isfl.report.split import convergence_and_split

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results/table2-half-published"
PICTURE = ROOT / "docs/pictures/overview.png"
GROUP, SEED = "nr-0.98", 0
ROWS = {
    "fedavg": "FedAvg",
    "uniform-is": "Uniform-IS",
    "isfl-0.05": "ISFL",
    "calibrated": "calibrated (ours)",
    "adaptive": "adaptive (ours)",
}
"""Row of the table -> its name in the picture."""


def cells() -> list[Cell]:
    """Return the runs to show; they have the same seed, and so the same split."""
    found = {cell.label: cell for cell in planned_cells(RESULTS)[1] if (cell.group, cell.seed) == (GROUP, SEED)}
    return [found[label] for label in ROWS]


def picture() -> bytes:
    """Return the picture as PNG."""
    runs = [read_run(cell.out, label=f"{GROUP}{SEPARATOR}{ROWS[cell.label]}") for cell in cells()]
    with in_print():
        return picture_of(convergence_and_split(runs), "png")


if __name__ == "__main__":
    PICTURE.write_bytes(picture())
    print(PICTURE.relative_to(ROOT))
