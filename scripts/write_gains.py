"""Write the table of the README: what sampling policies gained over FedAvg on each setting of our experiments.

    python scripts/write_gains.py

The runs are those of `results/` (`docs/policy.md` has all of their numbers).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from isfl.experiment.cells import planned_cells
from isfl.experiment.paired import Paired
from isfl.experiment.policy import WINNER
from isfl.experiment.standings import gains
from isfl.report.table import markdown_table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "README.md"
TABLE, CHOSEN, CONFIRMED = "table2-half-published", "policy-screen-half-published", "policy-confirm-half-published"
SETTINGS = {
    (TABLE, "nr-0.98"): "20 clients, two main classes each, 25 rounds, no augmentation *",
    (CHOSEN, "dirichlet-0.2"): "10 clients, Dirichlet 0.2 *",
    (CHOSEN, "SR=0.1"): "20 clients, two main classes each, a tenth of the draws *",
    (CONFIRMED, "nr-0.95"): "20 clients, less skew",
    (CONFIRMED, "shards"): "20 clients, only two shards each",
    (CONFIRMED, "dirichlet-0.4"): "10 clients, Dirichlet 0.4",
    (CONFIRMED, "participation-0.2"): "20 clients, a fifth of them per round",
    (CONFIRMED, "epochs-1"): "20 clients, one local epoch instead of five",
    (CONFIRMED, "K=100"): "100 clients, a fifth of them per round",
    (CONFIRMED, "fashion"): "Fashion-MNIST, 20 clients",
    (CONFIRMED, "digits"): "digits, 10 clients, Dirichlet 0.2",
}
"""Directory in `results/` and setting -> its description; those with a * were used to choose."""
SCHEMES = {
    "Uniform-IS": ("uniform-is",),
    "ISFL": ("isfl", "isfl-0.05"),
    "calibrated": ("calibrated", "t-0.5-cal"),
    "adaptive": ("adaptive", WINNER),
}
"""Heading -> the labels that the scheme has in `results/`."""
CAPTION = (
    "Points ahead of FedAvg with the same seed: mean of D_S and D_G (balanced test set and all clients' data) over the "
    "last five of 12 rounds; one to five seeds. CIFAR-10 unless the name says otherwise. * The splits "
    "that `adaptive` was chosen on."
)


def text(root: Path = ROOT) -> str:
    """Return the table and its caption; settings without a run of the recommended scheme are left out."""
    measured = {source: gains(planned_cells(root / "results" / source)[1]) for source, _ in SETTINGS}
    rows = []
    for (source, setting), name in SETTINGS.items():
        found = [_gain(measured[source], labels, setting) for labels in SCHEMES.values()]
        if found[-1] is not None:
            rows.append((name, *("-" if gain is None else f"{gain.mean:+.1f}" for gain in found)))
    return f"{markdown_table(('setting', *SCHEMES), rows)}\n\n{CAPTION}\n"


def _gain(measured: Mapping[str, Mapping[str, Paired]], labels: tuple[str, ...], setting: str) -> Paired | None:
    return next((measured[label][setting] for label in labels if setting in measured.get(label, {})), None)


def written(page: str, table: str) -> str:
    """Return the page with the table between its marks."""
    return re.sub(r"(<!-- gains -->\n).*?(<!-- /gains -->)", lambda mark: mark[1] + table + mark[2], page, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), text()), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
