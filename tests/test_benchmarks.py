"""The benchmark counts whole process trees, and one failure does not affect the rest. Nothing here is timed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks import data, peers, run
from benchmarks.contest import Contestant, Visit, contest, environment, visit
from benchmarks.environments import InstallError, Peer
from benchmarks.parts import PARTS, MeasureError, Options, Part, Result
from benchmarks.process_tree import CpuMeter, MemoryPeak, Tree, subreaper

ROOT = Path(__file__).parents[1]
SPIN = "import time\nwhile time.process_time() < 0.4: pass\n"
"""More than the 0.3 s that the tests expect: the kernel counts in hundredths and rounds."""

# ---------------------------------------------------------------- process trees


def python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def test_cpu_time_of_children_and_grandchildren_counts_after_they_ended() -> None:
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPIN!r}])\n{SPIN}"
    with subreaper():
        meter = CpuMeter(Tree())
        with python(code) as child:
            child.wait(60)
        assert meter.seconds() >= 0.6


def test_cpu_time_of_a_daemon_that_left_its_parent_counts() -> None:
    code = f"import os\nif os.fork() == 0:\n    os.setsid()\n    exec({SPIN!r})\n    os._exit(0)\n"
    with subreaper():
        tree = Tree()
        meter = CpuMeter(tree)
        with python(code) as child:
            child.wait(60)
            deadline = time.monotonic() + 60
            while meter.seconds() < 0.3 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert meter.seconds() >= 0.3
            tree.end(child)
        assert not tree.processes()
        assert meter.seconds() >= 0.3


def test_cpu_time_once_seen_counts_even_if_the_process_is_never_waited_for() -> None:
    """With SIGCHLD ignored, the kernel adds a child's time to no process."""
    grandchild = f"{SPIN}print('spun', flush=True)\ninput()\n"
    code = (
        "import signal, subprocess, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {grandchild!r}])\nchild.wait()\nprint('ended', flush=True)\n"
        "sys.stdin.read()"
    )
    with subreaper():
        tree = Tree()
        meter = CpuMeter(tree)
        with python(code) as child:
            assert child.stdout is not None and child.stdin is not None
            assert child.stdout.readline() == "spun\n"
            assert meter.seconds() >= 0.3
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "ended\n"
            assert meter.seconds() >= 0.3
            child.stdin.close()
            tree.end(child)


def test_the_peak_of_memory_sees_an_allocation_in_a_grandchild() -> None:
    grandchild = "block = b'x' * 100_000_000\nprint('allocated', flush=True)\ninput()\n"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {grandchild!r}])\n"
    tree = Tree()
    with MemoryPeak(tree, interval=0.02) as memory, python(code) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "allocated\n"
        time.sleep(0.1)
        child.communicate("\n", timeout=60)
    assert 100_000_000 < memory.peak < 300_000_000


def test_processes_that_existed_before_are_not_counted() -> None:
    with python("input()") as earlier:
        tree = Tree()
        assert not tree.processes()
        with python("input()") as later:
            assert {process.pid for process in tree.processes()} == {later.pid}
            tree.end(later)
        assert earlier.poll() is None
        earlier.communicate("\n", timeout=60)


# ---------------------------------------------------------------- contestants


def program(name: str, code: str) -> Contestant:
    return Contestant(name, [sys.executable, "-c", code], environment(PYTHONPATH=str(ROOT)))


def test_the_warm_up_round_is_not_counted() -> None:
    code = (
        "from benchmarks.contestants.clock import Clock\nclock = Clock('numpy')\nclock.ready()\n"
        "for number in range(3):\n    clock.begin()\n    sum(range(2_000_000))\n    print('noise {')\n"
        "    clock.end(50, number)\n"
    )
    seen = visit(program("good", code), 0, rounds=2, images=50, patience=60)
    assert seen.failure is None
    assert [r.loss for r in seen.rounds] == [1, 2] and all(r.seconds > 0 and r.cpu_seconds > 0 for r in seen.rounds)
    assert seen.versions.keys() == {"numpy"} and seen.peak_bytes > 0


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit('no engine')", "ended early (exit code 1): no engine"),
        ('print(\'{"versions": {}}\', flush=True); input(); print(\'{"round": 0, "images": 7}\')', "7 images"),
        ("input()", "no answer within 1 s"),
    ],
)
def test_a_contestant_that_fails_is_reported_with_the_reason(code: str, reason: str) -> None:
    seen = visit(program("bad", code), 0, rounds=1, images=50, patience=1 if code == "input()" else 60)
    assert seen.failure is not None and reason in seen.failure and not seen.rounds


def test_contestants_take_turns_and_a_failed_one_is_not_called_again() -> None:
    called = []

    def fake(contestant: Contestant, repetition: int) -> Visit:
        called.append(contestant.name)
        return Visit(contestant.name, repetition, failure="broken" if contestant.name == "b" else None)

    contest([program(name, "") for name in "abc"], 3, fake)
    assert called == list("abcacac")


def test_a_peer_that_cannot_be_installed_is_named_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def python_of(peer: Peer) -> Path:
        if peer.name == "pfl":
            raise InstallError("no such package")
        return Path(sys.executable)

    monkeypatch.setattr(peers, "python_of", python_of)
    found, missing = peers._contestants(tmp_path)
    assert [contestant.name for contestant in found] == ["plain", "isfl-1", "isfl-2", "flower"]
    assert missing == {"pfl": "no such package"}


def test_without_cifar_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISFL_CACHE", str(tmp_path))
    assert not data.write(tmp_path, 10) and not list(tmp_path.iterdir())


def test_every_part_is_a_module_that_measures() -> None:
    for name in PARTS:
        assert callable(importlib.import_module(f"benchmarks.{name.partition('-')[0]}").measure)


# ---------------------------------------------------------------- the command


def part(missed: list[str]) -> Part:
    return Part(lambda options: {"title": "A part", "rows": [{"what": "a", "seconds": 1.0}], "missed": missed})


def test_the_command_writes_results_and_fails_where_a_bar_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {"good": part([]), "bad": part(["too slow"])}
    assert run.main(["--only", "good", "--out", str(tmp_path)], parts) == 0
    assert run.main(["--out", str(tmp_path)], parts) == 1
    shown = capsys.readouterr().out
    assert "MISSED bad: too slow" in shown and "| a | 1.00 |" in shown
    written = json.loads((tmp_path / "bad.json").read_text(encoding="utf-8"))
    assert written["missed"] == ["too slow"] and written["machine"]["cores"] >= 1


def test_a_resumed_benchmark_measures_only_what_it_lacks_at_this_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bar that was missed earlier is still missed; another size, another commit or changed files count as lacking."""
    turns: list[str] = []

    def counted(name: str, missed: list[str]) -> Part:
        def measure(options: Options) -> Result:
            turns.append(name)
            return part(missed).measure(options)

        return Part(measure)

    parts = {"good": counted("good", []), "bad": counted("bad", ["too slow"])}
    command = ["--resume", "--out", str(tmp_path)]
    monkeypatch.setattr(run, "commit", lambda: "abc")
    assert run.main([*command, "--only", "bad"], parts) == 1 and turns == ["bad"]
    assert run.main(command, parts) == 1 and turns == ["bad", "good"]
    assert capsys.readouterr().out.count("MISSED bad: too slow") == 2
    assert run.main([*command, "--quick"], parts) == 1 and turns[2:] == ["good", "bad"]
    for commit in ("def", "def+", "def+"):
        monkeypatch.setattr(run, "commit", lambda commit=commit: commit)
        turns.clear()
        assert run.main(command, parts) == 1 and turns == ["good", "bad"]


def test_the_command_names_a_missing_requirement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(options: Options) -> Result:
        raise MeasureError("get it with `isfl data get cifar10`")

    assert run.main(["--out", str(tmp_path)], {"peers": Part(measure)}) == 2
    assert "isfl data get cifar10" in capsys.readouterr().err
