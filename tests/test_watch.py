"""The live page follows a run from another process, costs little, and stays after the run ends."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from isfl.errors import UserError
from isfl.experiment.run import resume
from isfl.report import live
from isfl.report.live import SHARE, Viewer, follow, served
from isfl.report.reading import find_runs
from tests.browser import opened, started
from tests.directories import tiny_run, written_run

pytestmark = pytest.mark.timeout(120)


class Clock:
    """A clock that a test moves forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def grow(path: Path, rounds: int) -> None:
    """Write the files of a run up to this round."""
    for name in ("metrics.jsonl", "probabilities.jsonl"):
        lines = (path.parent / "whole" / name).read_text().splitlines(keepends=True)
        (path / name).write_text("".join(lines[:rounds]))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of four rounds with two of them finished."""
    written_run(tmp_path / "whole", 2, 3, 4)
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    (tmp_path / "run/model.safetensors").unlink()
    grow(tmp_path / "run", 2)
    return tmp_path / "run"


def get(address: str, **headers: str) -> tuple[int, Any, bytes]:
    request = urllib.request.Request(address, headers={key.replace("_", "-"): value for key, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_unchanged_files_are_not_read_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, clock, real = 0, Clock(), find_runs

    def counted(*given: Any) -> Any:
        nonlocal reads
        reads += 1
        clock.now += 0.1  # reading takes that long
        return real(*given)

    monkeypatch.setattr(live, "find_runs", counted)
    viewer = Viewer([run], clock)
    clock.now += 1000
    viewer.refresh()
    assert reads == 1, "nothing has changed"
    grow(run, 3)
    viewer.refresh()
    assert reads == 2 and len(viewer.runs[0].lines) == 3
    grow(run, 4)
    clock.now += 0.1 / SHARE - 0.01
    viewer.refresh()
    assert reads == 2, "reading again at once would cost more than its share"
    clock.now += 0.02
    viewer.refresh()
    assert reads == 3 and len(viewer.runs[0].lines) == 4


def test_a_deleted_run_directory_stays_visible(run: Path) -> None:
    clock = Clock()
    viewer = Viewer([run], clock)
    shutil.rmtree(run)
    clock.now += 1000
    viewer.refresh()
    assert len(viewer.runs[0].lines) == 2


def test_the_server_answers_this_machine_and_sends_only_what_is_new(run: Path) -> None:
    clock = Clock()
    with served(Viewer([run], clock), 0) as address:
        code, headers, body = get(address)
        assert code == 200 and b'data-live="/data.json"' in body and b"connect-src 'self'" in body
        code, headers, body = get(f"{address}data.json")
        assert code == 200 and json.loads(body)["runs"][0]["round"] == [1, 2]
        assert get(f"{address}data.json", If_None_Match=headers["ETag"])[0] == 304
        grow(run, 3)
        clock.now += 1000
        code, _, body = get(f"{address}data.json", If_None_Match=headers["ETag"])
        assert code == 200 and json.loads(body)["runs"][0]["round"] == [1, 2, 3]
        assert get(address, Host="evil.example")[0] == 403
        assert get(f"{address}../etc/passwd")[0] == 404
        with (
            pytest.raises(UserError, match=r"--port \d+: cannot be listened on"),
            served(Viewer([run]), int(address[17:-1])),
        ):
            pass
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)


def test_rounds_are_forwarded_until_the_run_is_finished(run: Path) -> None:
    clock, seen = Clock(), []

    def on_round(line: dict[str, Any]) -> None:
        seen.append(line["round"])
        clock.now += 1000
        if line["round"] in (2, 3):
            grow(run, line["round"] + 1)

    follow(Viewer([run], clock), on_round, every=0.01)
    assert seen == [1, 2, 3, 4]


# ---------------------------------------------------------------- real processes


@contextmanager
def watching(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `isfl watch` in a new process and yield its address."""
    command = [sys.executable, "-m", "isfl.cli", "watch", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that runs the tests in the background ignores Ctrl-C, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert found is not None
        yield process, found[0]
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_the_page_follows_a_run_and_outlives_it(tmp_path: Path) -> None:
    path = tiny_run(tmp_path / "run", rounds=1)
    with started() as browser, watching(str(path)) as (process, address), opened(browser, address) as (page, seen):
        assert "stopped after 1 of 3 rounds" in page.inner_text("header")
        page.select_option("#layer", "local")
        resume(path)
        page.wait_for_selector("#subtitle:has-text('finished')", timeout=30_000)
        assert page.inner_text("#round-shown") == "3" and page.input_value("#layer") == "local"
        assert process.poll() is None, "the run has ended, the page has not"
        assert seen.complaints == []
        assert {url.rpartition("/")[0] + "/" for url in seen.requests} == {address}
        assert process.stdout is not None
        said = ""
        while "finished; the page stays until Ctrl-C" not in said:
            said += (line := process.stdout.readline())
            assert line, said
        assert "round   3/3" in said
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert process.returncode == 0 and "Traceback" not in rest
        page.wait_for_selector("#subtitle:has-text('isfl watch has ended')")


def test_watching_does_not_stop_a_run_from_starting(tmp_path: Path) -> None:
    """Checking whether a process works on a run must not take its lock."""
    path = tiny_run(tmp_path / "run", rounds=1)
    with watching(str(path)) as (_, address):
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            get(f"{address}data.json")
        resume(path)


@pytest.mark.parametrize(
    ("arguments", "complaint"), [(["nowhere"], "nowhere: no such directory"), (["."], "not a run")]
)
def test_nothing_to_watch_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    command = [sys.executable, "-m", "isfl.cli", "watch", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and complaint in done.stderr and done.stderr.count("\n") == 1
