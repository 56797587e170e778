"""The campaign that kills deployed runs: it finds the processes, follows the commands, and sees every difference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from campaigns import deployed
from campaigns.verdicts import Verdict, chance_of

from isfl import layout
from isfl.experiment.run import run
from isfl.problem.config import parse_config


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deployed")


def finished(out: Path, absent: frozenset[tuple[int, int]] = frozenset(), named: bool = True) -> Path:
    """Make a run in which some clients are missing in some rounds; `named`: its metrics say so."""
    run(parse_config(deployed.CONFIG, "c.toml", []), out, host=deployed._Without(absent=absent))
    lines = [json.loads(line) for line in (out / layout.METRICS).read_text().splitlines()]
    for line in lines:
        line["refused"] = {str(c): "left" for number, c in absent if named and number == line["round"]}
    (out / layout.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return out


def test_a_deployed_run_equals_one_without_exactly_the_clients_it_names(place: Path, tmp_path: Path) -> None:
    absent = frozenset({(2, 1)})
    whole, without = finished(tmp_path / "whole"), finished(tmp_path / "without", absent)
    silent = finished(tmp_path / "silent", absent, named=False)
    verdicts = [deployed._judged(place, out, "", 3).verdict for out in (whole, without, silent)]
    assert verdicts == [Verdict.SAME, Verdict.NAMED, Verdict.DIFFERENT]
    lines = (whole / layout.METRICS).read_text().splitlines(keepends=True)
    (whole / layout.METRICS).write_text("".join(lines[:-1]))
    assert deployed._judged(place, whole, "", 3).verdict is Verdict.DIFFERENT


def test_apps_are_found_among_the_descendants_of_a_process() -> None:
    app = "[sys.executable, '-c', 'import time; time.sleep(60)', 'flwr-' + 'clientapp']"
    between = [sys.executable, "-c", f"import subprocess, sys; subprocess.run({app})"]
    with subprocess.Popen(between) as process:
        end = time.monotonic() + 30
        while not (found := deployed._apps(process.pid, "flwr-clientapp")) and time.monotonic() < end:
            time.sleep(0.05)
        assert len(found) == 1 and found != [process.pid] and deployed._apps(None, "flwr-clientapp") == []
        os.kill(found[0], 9)


FAKE = """
import sys, time, shutil, pathlib
words, whole = sys.argv[2:], sys.argv[1]
if words[0] == "run":
    out = pathlib.Path(words[words.index("--out") + 1])
    out.mkdir()
    time.sleep(0.5)
    sys.exit("Traceback" if (out.parent / "unclear").exists() else print("error: resume", file=sys.stderr) or 2)
if words[0] == "resume":
    if pathlib.Path(words[1]).with_name("never").exists():
        sys.exit(print("error: resume", file=sys.stderr) or 2)
    shutil.rmtree(words[1])
    shutil.copytree(whole, words[1])
"""
"""An `isfl` whose run always ends and asks to be resumed."""


@pytest.mark.parametrize(
    ("mark", "verdict"), [("", Verdict.SAME), ("never", Verdict.LOST), ("unclear", Verdict.UNCLEAR)]
)
def test_a_run_is_resumed_until_it_finishes_and_only_kills_that_took_place_count(
    mark: str, verdict: Verdict, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, scratch = finished(tmp_path / "whole"), place / f"try-{mark}"
    scratch.mkdir()
    (scratch / (mark or "nothing")).touch()
    monkeypatch.setattr(deployed, "_isfl", lambda *words: [sys.executable, "-c", FAKE, str(whole), *words])
    struck = iter([True])  # the server app of the first command; later commands end before they are struck
    monkeypatch.setattr(deployed, "_struck", lambda *_: next(struck, False))
    judged = deployed.killed(0, chance_of(0, "deployed", 0), scratch)
    assert (judged.verdict, judged.faults) == (verdict, 1) and "killed: server app" in judged.what
