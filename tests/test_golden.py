"""Final models of ten small runs, bit for bit, as they were when `golden.json` was written.

Bits depend on the processor and on torch: machines that the file does not know skip these tests. After a change that is
meant to change bits, or for another machine, write the file anew and say why in the commit. Delete the runs of other
machines whose bits have changed:

    python -m tests.test_golden
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from isfl.experiment.environment import environment
from isfl.experiment.run import LocalHost, run
from isfl.problem.config import config_from

FILE = Path(__file__).with_name("golden.json")
BASE: dict[str, Any] = {
    "data": {"public": 40},
    "split": {"kind": "mixed", "clients": 4, "shard_size": 20, "nr": 0.8},
    "model": {"name": "small-cnn", "width": 0.5},
    "training": {"rounds": 3, "local_epochs": 2, "batch_size": 16},
}
AT_CLIENT = {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}
RUNS: dict[str, dict[str, Any]] = {
    "fedavg": {"scheme": "fedavg"},
    "isfl, exact solver, local target": {
        "scheme": {"name": "isfl", "sampling": {"solver": "exact", "target_floor": 0.5}},
        "target": {"kind": "local", "weight": 0.5},
    },
    "isfl as the authors, augmented": {
        "scheme": {"name": "isfl", "sampling": {"first_round": "target", "reference": "before"}},
        "training": {"augment": ["crop", "flip"], "initial_models": "independent", "drop_last": True},
    },
    "private": {"scheme": {"name": "isfl", "sampling": {"where": "client"}}, "target": {"kind": "uniform"}},
    "private, measured at the client, moon": {
        "scheme": {**AT_CLIENT, "objective": {"kind": "moon"}},
        "target": {"kind": "noised", "epsilon": 1.0},
        "training": {"batchnorm": "local", "participation": 0.5},
    },
    "calibrated fedprox, sgd, schedule": {
        "scheme": {"name": "calibrated", "objective": {"kind": "fedprox"}},
        "training": {"optimizer": {"kind": "sgd", "momentum": 0.9}, "schedule": {"kind": "cosine"}},
    },
    "isfedavg, adam at the server, group norm": {
        "scheme": {"name": "isfedavg", "sampling": {"unbiased": True}, "aggregation": {"rule": "adam"}},
        "training": {"batchnorm": "group"},
    },
    "resnet8, trimmed mean": {
        "scheme": {"name": "uniform-is", "aggregation": {"rule": "trimmed-mean", "trim": 0.25}},
        "model": {"name": "resnet8", "width": 0.25},
    },
    "workers": {"scheme": "isfl"},
    "flower": {"scheme": "isfl"},
}
"""The last two are one configuration: with two workers, and in Flower's simulation."""


def machine() -> str:
    described = environment()
    name, ways = described["machine"]["processor"], described["machine"]["convolutions"]
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}, {ways}"


def final_model(name: str, directory: Path) -> str:
    """Return the SHA-256 of the final model of a run."""
    changes = RUNS[name]
    raw = {**BASE, **changes, "training": {**BASE["training"], **changes.get("training", {})}}
    config, out = config_from(raw, name), directory / "run"
    if name == "flower":
        file = directory / "config.json"
        file.write_text(config.model_dump_json())
        arguments = ["-c", _SIMULATE, str(file), str(out)]
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=300)
    else:
        run(config, out, host=LocalHost(2 if name == "workers" else 1))
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


_SIMULATE = """
import sys
from pathlib import Path
from isfl.problem.config import Config
from isfl.experiment.flower_runs import simulate
config = Config.model_validate_json(Path(sys.argv[1]).read_text())
simulate(config, Path(sys.argv[2]), lambda line: None, print, 1)
"""


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.timeout(320)
def test_the_final_model_is_the_golden_one(name: str, tmp_path: Path) -> None:
    known = json.loads(FILE.read_text(encoding="utf-8"))
    if name not in known.get(machine(), {}):
        pytest.skip(f"golden.json does not know this run on this machine ({machine()})")
    assert final_model(name, tmp_path) == known[machine()][name]


def test_workers_and_flower_end_with_the_same_model() -> None:
    for hashes in json.loads(FILE.read_text(encoding="utf-8")).values():
        assert hashes["workers"] == hashes["flower"]


if __name__ == "__main__":
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    found = {}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as directory:
            found[name] = final_model(name, Path(directory))
            print(name, found[name][:12])
    FILE.write_text(json.dumps({**known, machine(): found}, indent=2) + "\n", encoding="utf-8")
