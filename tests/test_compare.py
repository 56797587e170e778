"""`isfl compare` in real processes: tables, variants, parallel runs, interrupts."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tests.commands import isfl
from tests.worlds import started


def test_compare_prints_a_table_with_spread_and_draws_a_picture(tiny: Path) -> None:
    result = isfl(
        "compare", "tiny.toml", "--schemes", "fedavg,isfl,centralized", "--seeds", "0,1", "--out", "c", cwd=tiny.parent
    )
    assert result.returncode == 0, result.stderr
    assert "±" in result.stdout and "[6/6]" in result.stdout
    out = tiny.parent / "c"
    rows = {row["scheme"]: row for row in json.loads((out / "summary.json").read_text())}
    assert list(rows) == ["fedavg", "isfl", "centralized"]
    finals = [
        json.loads((out / f"isfl/seed-{s}/metrics.jsonl").read_text().splitlines()[-1])["accuracy_standard"]
        for s in (0, 1)
    ]
    assert rows["isfl"]["standard"] == pytest.approx(100 * np.mean(finals))
    assert rows["isfl"]["standard_spread"] == pytest.approx(100 * np.std(finals, ddof=1))
    assert rows["isfl"]["extra_gradients"] == pytest.approx(100 * 4 * 40 / 180)
    assert "| isfl |" in (out / "summary.md").read_text()
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "fedavg" in (out / "report.html").read_text()
    pooled = json.loads((out / "centralized/seed-0/split.json").read_text())["client_counts"]
    assert len(pooled) == 1 and sum(pooled[0]) == 180


def test_a_variant_is_a_row_of_its_own(tiny: Path) -> None:
    """ISFL beside ISFL with another reference and MOON's objective: one command."""
    variant = "isfl+moon: scheme.objective.kind=moon; scheme.sampling.reference=before"
    arguments = ("--schemes", "isfl", "--variant", variant, "--seeds", "0", "--out", "c")
    result = isfl("compare", "tiny.toml", *arguments, cwd=tiny.parent)
    assert result.returncode == 0, result.stderr
    scheme = json.loads((tiny.parent / "c/isfl+moon/seed-0/config.json").read_text())["scheme"]
    assert (scheme["name"], scheme["objective"]["kind"]) == ("isfl", "moon")
    assert scheme["sampling"]["reference"] == "before"
    assert [row["scheme"] for row in json.loads((tiny.parent / "c/summary.json").read_text())] == ["isfl", "isfl+moon"]


def test_a_comparison_does_not_depend_on_the_number_of_parallel_runs(tiny: Path) -> None:
    for name, jobs in (("one", "1"), ("two", "2")):
        arguments = ("--schemes", "isfl", "--seeds", "0,1", "--jobs", jobs, "--out", name)
        assert isfl("compare", "tiny.toml", *arguments, cwd=tiny.parent).returncode == 0
    for seed in (0, 1):
        one, two = (tiny.parent / name / f"isfl/seed-{seed}/model.safetensors" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_a_comparison_with_partial_participation_has_probabilities_of_every_client(tiny: Path) -> None:
    arguments = ("--schemes", "centralized,isfl", "--seeds", "0", "--set", "training.participation=0.5", "--out", "c")
    result = isfl("compare", "tiny.toml", *arguments, cwd=tiny.parent)
    assert result.returncode == 0, result.stderr
    assert "±" not in result.stdout  # one seed has no spread
    rows = [json.loads(line) for line in (tiny.parent / "c/isfl/seed-0/probabilities.jsonl").read_text().splitlines()]
    assert all(len(row["probabilities"]) == 3 for row in rows)  # also of absent clients


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_leaves_no_process_behind(tiny: Path, signal_: signal.Signals) -> None:
    with started("compare", "tiny.toml", "--set", "training.rounds=100000", cwd=tiny.parent) as parent:
        children: list[str] = []
        for _ in range(200):
            found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent.pid)], capture_output=True, text=True)
            children = found.stdout.split()
            if len(list(tiny.parent.glob("runs/*/*/seed-*/metrics.jsonl"))) >= 2:
                break
            time.sleep(0.1)
        assert len(children) >= 2
        parent.send_signal(signal_)
        _, errors = parent.communicate(timeout=30)
    if signal_ == signal.SIGINT:
        assert parent.returncode == 130 and errors.startswith("error: interrupted; resume with: isfl resume runs/tiny-")
    for _ in range(50):
        if not any(Path(f"/proc/{pid}").exists() for pid in children):
            break
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
