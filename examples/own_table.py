"""A table of measurements, one part per hospital: isfl on your own rows of numbers, with clients that already exist.

python examples/own_table.py
"""

from __future__ import annotations

import numpy as np
from torch import nn

import isfl

FEATURES, CLASSES = 12, 3
CENTRES = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))


def patients(count: int, shares: list[float], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Measurements (rows of floats) and diagnoses (whole numbers) in place of a file that you would read here."""
    rng = np.random.default_rng(seed)
    diagnoses = rng.choice(CLASSES, count, p=shares)
    return CENTRES[diagnoses] + rng.normal(size=(count, FEATURES)), diagnoses


def network(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(input_shape[0], 32), nn.ReLU(), nn.Linear(32, classes))


HOSPITALS = {
    "north": patients(300, [0.9, 0.05, 0.05], seed=1),
    "east": patients(200, [0.05, 0.9, 0.05], seed=2),
    "south": patients(400, [0.05, 0.05, 0.9], seed=3),
}
CONFIG = {
    "scheme": "isfl",
    "data": {"public": 60},
    "training": {"rounds": 5, "local_epochs": 2, "batch_size": 32, "optimizer": {"kind": "adam", "lr": 0.01}},
}


def main(out: str | None = None) -> float:
    test = patients(600, [1 / 3, 1 / 3, 1 / 3], seed=4)
    run = isfl.run(CONFIG, data=(HOSPITALS, test), model=network, out=out)
    accuracy: float = run.records[-1]["accuracy_standard"]
    print(f"{len(HOSPITALS)} hospitals: accuracy {accuracy:.2f} after {len(run.records)} rounds; see {run.path}")
    return accuracy


if __name__ == "__main__":
    main()
