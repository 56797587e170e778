"""isfl's local engine against a plain loop, Flower's simulation and Apple's pfl, on the same FedAvg round."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.bars import Summary, judge, summarise
from benchmarks.contest import Contestant, Visit, contest, environment, visit
from benchmarks.environments import PEERS, InstallError, python_of
from benchmarks.parts import MeasureError, turns_each

ROOT = Path(__file__).parents[1]
CLIENTS = 10
IMAGES, QUICK_IMAGES = 1000, 128
"""Per client."""
REPETITIONS, QUICK_REPETITIONS = 3, 2
ROUNDS = 1
"""Measured rounds per visit, without the warm-up round."""
PATIENCE = 900.0
"""Time limit of a start or a round, in seconds."""


def measure(quick: bool, images: int | None = None, repetitions: int | None = None) -> dict[str, Any]:
    images = images or (QUICK_IMAGES if quick else IMAGES)
    repetitions = repetitions or (QUICK_REPETITIONS if quick else REPETITIONS)
    with tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        folder = Path(scratch)
        write_data(folder, CLIENTS * images)
        contestants, not_measured = _contestants(folder)

        def one_visit(contestant: Contestant, repetition: int) -> Visit:
            result = visit(contestant, repetition, ROUNDS, CLIENTS * images, PATIENCE)
            said = result.failure or ", ".join(f"{r.seconds:.2f} s" for r in result.rounds)
            print(f"{repetition + 1}/{repetitions} {contestant.name}: {said}", file=sys.stderr, flush=True)
            return result

        visits = contest(contestants, repetitions, one_visit)
    summaries = summarise(visits)
    not_measured |= {v.contestant: v.failure for v in visits if v.failure and v.contestant not in summaries}
    missed, unjudged = judge(summaries)
    return {
        "title": f"One round of FedAvg: {CLIENTS} clients x {images} CIFAR-10 images, ResNet8, one epoch, batch 128",
        "rows": [_row(summary) for summary in summaries.values()],
        "missed": missed,
        "notes": [turns_each(repetitions)]
        + [f"{name} was not measured: {why}" for name, why in not_measured.items()]
        + [
            f"{v.contestant} failed in repetition {v.repetition + 1}: {v.failure}"
            for v in visits
            if v.failure and v.contestant not in not_measured
        ]
        + [f"not judged: {bar}" for bar in unjudged],
        "versions": {v.contestant: v.versions for v in visits},
        "visits": [dataclasses.asdict(v) for v in visits],
    }


def _row(summary: Summary) -> dict[str, Any]:
    return {
        "contestant": summary.contestant,
        "seconds a round": summary.seconds,
        "speed against plain": summary.speed,
        "images/s": summary.images_a_second,
        "CPU seconds a round": summary.cpu_seconds,
        "peak memory in MB": summary.peak_bytes / 1e6,
    }


def write_data(folder: Path, images: int, *kind: str) -> None:
    command = [sys.executable, "-m", "benchmarks.data", str(folder), str(images), *kind]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise MeasureError((done.stderr.strip().splitlines() or ["the data could not be written"])[-1])


def _contestants(folder: Path) -> tuple[list[Contestant], dict[str, str]]:
    """Return the contestants that can run, in order, and the reason for each that cannot."""
    found = [
        contestant("plain", sys.executable, "plain", folder, threads=2),
        contestant("isfl-1", sys.executable, "ours", folder, workers=1),
        contestant("isfl-2", sys.executable, "ours", folder, workers=2),
    ]
    missing = {}
    for name, peer in PEERS.items():
        try:
            found.append(contestant(name, str(python_of(peer)), f"{name}_peer", folder, workers=2))
        except InstallError as reason:
            missing[name] = str(reason)
    return found, missing


def contestant(
    name: str,
    python: str,
    module: str,
    folder: Path,
    workers: int = 1,
    threads: int = 1,
    network: str = "resnet8",
    rounds: int = ROUNDS,
) -> Contestant:
    """Return the program that trains `network` for a warm-up round and some rounds more."""
    arguments = [str(folder), "--rounds", str(rounds + 1), "--workers", str(workers), "--network", network]
    private = environment(
        PYTHONPATH=str(ROOT),
        FLWR_HOME=str(folder / "flower"),
        FLWR_TELEMETRY_ENABLED="0",
        FLWR_DISABLE_UPDATE_CHECK="1",
        FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION="1",
        RAY_USAGE_STATS_ENABLED="0",
        RAY_TMPDIR=str(folder),
    )
    chosen = _environment() if python == sys.executable else private
    return Contestant(
        name,
        [python, "-m", f"benchmarks.contestants.{module}", *arguments],
        {**chosen, "OMP_NUM_THREADS": str(threads)},
    )


def _environment() -> dict[str, str]:
    """Return an environment that uses the sources of this repository, not an installed isfl."""
    return environment(PYTHONPATH=f"{ROOT}:{ROOT / 'src'}")
