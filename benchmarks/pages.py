"""Cost of the report and of `watch`: size and first response of a large report, and the CPU share of `watch`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from tests.browser import started
from tests.directories import written_run

from isfl import layout
from isfl.report.content import content_of
from isfl.report.page import write_page
from isfl.report.reading import read_run

CLIENTS, CLASSES, ROUNDS = 20, 100, 25
MOST_BYTES, MOST_SECONDS, MOST_SHARE = 15e6, 2.0, 0.01
CONFIG = """
scheme = "isfl"
split = {{ kind = "mixed", clients = 10, shard_size = 250, nr = 0.9 }}
training = {{ rounds = {rounds}, local_epochs = 5, batch_size = 128 }}
"""
POLL = 2.0
"""Seconds between two requests of an open page."""


def measure(quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        run = written_run(Path(scratch) / "run", CLIENTS, CLASSES, ROUNDS)
        file = write_page(content_of([read_run(run)], []), Path(scratch) / layout.REPORT)
        size, times = file.stat().st_size, _responses(file, 3 if quick else 9)
        share, cpu = _watched(Path(scratch) / "watched", 30 if quick else 120)
    found = [
        (f"report of {ROUNDS} rounds x {CLIENTS} clients x {CLASSES} classes: MB", size / 1e6, MOST_BYTES / 1e6),
        ("seconds until its slider has moved the heat map", median(times), MOST_SECONDS),
        ("watch: share of the run's CPU time in %", 100 * share, 100 * MOST_SHARE),
    ]
    return {
        "title": "Reports and the live page",
        "rows": [{"what": what, "measured": value, "bar": bar} for what, value, bar in found],
        "missed": [f"{what} is {value:.2f}; the limit is {bar:g}" for what, value, bar in found if value > bar],
        "notes": [
            f"a page asked the watching process every {POLL:g} s; all of its CPU time counts, its start included",
            "seconds: opening the file in a Chromium that is running, drawing everything, and one step of the slider",
        ],
        "samples": {"seconds": times, "cpu_seconds": cpu},
    }


def _responses(file: Path, turns: int) -> list[float]:
    times = []
    with started() as browser:
        for _ in range(turns):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            began = time.perf_counter()
            page.goto(file.as_uri())
            page.focus("#round")
            page.keyboard.press("Home")
            assert page.inner_text("#round-shown") == "1"
            times.append(time.perf_counter() - began)
            page.close()
    return times


def _watched(out: Path, rounds: int) -> tuple[float, dict[str, float]]:
    """Run the demonstration's ISFL for many rounds with the page open from the first round to the end."""
    config = out.with_suffix(".toml")
    config.write_text(CONFIG.format(rounds=rounds))
    run = subprocess.Popen(_isfl("run", str(config), "--out", str(out)), stdout=subprocess.DEVNULL)
    while not out.exists() and run.poll() is None:
        time.sleep(0.1)
    watch = subprocess.Popen(_isfl("watch", str(out)), stdout=subprocess.PIPE, text=True)
    assert watch.stdout is not None
    address = re.search(r"http://\S+/", watch.stdout.readline())
    assert address is not None
    ended = threading.Event()
    page = threading.Thread(target=_ask, args=(f"{address[0]}data.json", ended))
    page.start()
    _, _, used = os.wait4(run.pid, 0)
    ended.set()
    page.join(timeout=60)
    watch.send_signal(signal.SIGTERM)
    _, _, looked = os.wait4(watch.pid, 0)
    watch.stdout.close()
    cpu = {"run": used.ru_utime + used.ru_stime, "watch": looked.ru_utime + looked.ru_stime}
    return cpu["watch"] / cpu["run"], cpu


def _ask(address: str, ended: threading.Event) -> None:
    tag = ""
    while not ended.wait(POLL):
        with suppress(OSError):  # 304: nothing new
            request = urllib.request.Request(address, headers={"If-None-Match": tag})
            with urllib.request.urlopen(request, timeout=10) as answer:
                tag = answer.headers["ETag"]
                answer.read()


def _isfl(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "isfl.cli", *arguments]
