"""A million virtual clients, 1,000 per round: memory, seconds and checkpoint of every round.

Private ISFL (the server measures Lipschitz values, clients solve) and tempered sampling. Embedded Fashion-MNIST, 20
images per client, a small perceptron. A tenth of the clients is the reference: nothing may depend on their number.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.parts import MeasureError
from benchmarks.process_tree import MemoryPeak, Tree, subreaper
from isfl import layout
from isfl.lines import read_lines

SCHEMES = {
    "private ISFL": '{ name = "isfl", sampling = { where = "client", estimator = "last-layer" } }',
    "tempered": '"tempered"',
}
MOST_GROWTH = 1.1
"""Limit for memory, as a factor: over the rounds, and with ten times the clients."""
EARLY = 5
"""Rounds of the reference. After the first of them, everything that is needed once is in memory."""
SAMPLED = 4
"""Rounds whose largest memory counts: it is sampled, and the peak of one round can lie between two samples."""
CONFIG = """
scheme = {scheme}
target = {{ kind = "uniform" }}
data = {{ name = "fashion-mnist-mini", public = 50 }}
split = {{ kind = "virtual", clients = {clients}, samples_per_client = 20, alpha = 0.2 }}
model = {{ name = "mlp", width = 0.5 }}
[training]
rounds = {rounds}
local_epochs = 1
batch_size = 20
participation = {participation}
optimizer = {{ kind = "sgd", lr = 0.3 }}
"""


@dataclass(frozen=True)
class Run:
    """One number per round."""

    seen: list[int]
    """Clients that have been chosen so far."""
    seconds: list[float]
    memory: list[int]
    """At the round's peak, over all processes, in bytes."""
    checkpoint: list[int]
    """In bytes."""
    accuracy: list[float]

    @property
    def early(self) -> int:
        """Memory after the first round: the largest of the next few."""
        return max(self.memory[1 : 1 + SAMPLED])

    @property
    def late(self) -> int:
        """The largest memory of the last few rounds."""
        return max(self.memory[-SAMPLED:])


def measure(quick: bool, name: str = "private ISFL") -> dict[str, Any]:
    clients, chosen, rounds = (200_000, 100, 8) if quick else (1_000_000, 1_000, 20)
    with subreaper(), tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        sizes = {clients // 10: EARLY, clients: rounds}
        runs = {size: _run(Path(scratch), name, size, chosen, length) for size, length in sizes.items()}
    return {
        "title": f"{name}: {clients:,} virtual clients, {chosen:,} per round, {rounds} rounds, one process",
        "rows": [_row(size, run) for size, run in runs.items()],
        "notes": [note(runs[clients])],
        "missed": missed(runs),
        "rounds": {str(size): vars(run) for size, run in runs.items()},
    }


def _row(clients: int, run: Run) -> dict[str, Any]:
    return {
        "clients": f"{clients:,}",
        "rounds": len(run.seconds),
        "clients seen": f"{run.seen[-1]:,}",
        "seconds per round": median(run.seconds),
        f"memory in MB, rounds 2 to {1 + SAMPLED}": run.early / 1e6,
        f"memory in MB, last {SAMPLED} rounds": run.late / 1e6,
        "checkpoint in MB, round 1": run.checkpoint[0] / 1e6,
        "checkpoint in MB, last round": run.checkpoint[-1] / 1e6,
    }


def bytes_per_client(run: Run) -> float:
    """Return how much a checkpoint grows with each client that is seen."""
    return (run.checkpoint[-1] - run.checkpoint[0]) / (run.seen[-1] - run.seen[0])


def note(run: Run) -> str:
    return (
        f"Each client seen adds {bytes_per_client(run):.0f} bytes to the checkpoint; the fastest round took "
        f"{min(run.seconds):.1f} s, the slowest {max(run.seconds):.1f} s; accuracy on D_S went from "
        f"{100 * run.accuracy[0]:.1f} % to {100 * run.accuracy[-1]:.1f} %."
    )


def missed(runs: Mapping[int, Run]) -> list[str]:
    found, (reference, run) = [], (runs[min(runs)], runs[max(runs)])
    for what, one, other in (
        (f"the end of a run of {max(runs):,} clients", run.early, run.late),
        (f"a federation of {max(runs):,} clients", reference.early, run.early),
    ):
        if other > MOST_GROWTH * one:
            found.append(f"{what} takes {other / one:.2f} times the memory; the limit is {MOST_GROWTH}")
    return found


class RoundPeaks(MemoryPeak):
    """Memory and checkpoint of every round of a run, sampled while it runs."""

    def __init__(self, out: Path) -> None:
        super().__init__(Tree(), interval=0.25)
        self.out, self.memory, self.checkpoint = out, dict[int, int](), dict[int, int]()

    def look(self) -> None:
        most, self.peak = self.peak, 0
        super().look()
        now, self.peak = self.peak, max(most, self.peak)
        metrics = self.out / layout.METRICS
        number = 1 + (metrics.read_bytes().count(b"\n") if metrics.exists() else 0)
        self.memory[number] = max(self.memory.get(number, 0), now)
        for file in (self.out / layout.CHECKPOINTS).glob("round-*.safetensors"):
            self.checkpoint[int(file.stem.removeprefix("round-"))] = file.stat().st_size


def _run(place: Path, name: str, clients: int, chosen: int, rounds: int) -> Run:
    config, out = place / f"{clients}.toml", place / f"run-{clients}"
    settings = {"scheme": SCHEMES[name], "clients": clients, "rounds": rounds, "participation": chosen / clients}
    config.write_text(CONFIG.format(**settings))
    with RoundPeaks(out) as peaks:
        done = subprocess.run(
            [sys.executable, "-m", "isfl.cli", "run", str(config), "--out", str(out), "--jobs", "1"],
            capture_output=True,
            text=True,
            timeout=3600,
        )
        peaks.look()
    if done.returncode != 0:
        raise MeasureError(done.stderr.strip().splitlines()[-1])
    lines, met, seen = read_lines(out / layout.METRICS), set[int](), []
    for line in lines:
        met |= set(line["participants"])
        seen.append(len(met))
    return Run(
        seen,
        [line["seconds"]["wall"] for line in lines],
        [peaks.memory[line["round"]] for line in lines],
        [peaks.checkpoint[line["round"]] for line in lines],
        [line["accuracy_standard"] for line in lines],
    )
