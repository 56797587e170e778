"""`isfl doctor` lists the facts of this machine, as text and as JSON, also if parts are missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from isfl.cli.facts import Cache, Convolutions, Facts, described
from isfl.data.cache import store

FACTS = Facts(
    system="Linux x86_64",
    python="3.11.2",
    versions={"isfl": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6", "flwr": "1.41.0", "ray": "2.55.1"},
    cores=2,
    cuda_devices=0,
    convolutions=Convolutions("/usr/bin/cc", 16, None),
    cache=Cache("/home/me/.cache/isfl", 2_500_000, ["cifar10"]),
    flower=True,
    flower_simulation=True,
    browser="/usr/bin/chromium",
    browser_tests=True,
)


def doctor(*options: str, **environment: str) -> str:
    command = [sys.executable, "-m", "isfl.cli", "doctor", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def lines(facts: Facts) -> dict[str, tuple[str, str]]:
    return {name: (value, meaning) for name, value, meaning in described(facts)}


def test_json_holds_the_facts_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISFL_CACHE", str(tmp_path))
    store("mine", {"train_images": np.zeros((3, 5))})
    facts = json.loads(doctor("--json", ISFL_CACHE=str(tmp_path)))
    assert facts["versions"]["torch"] == torch.__version__ and facts["python"] == sys.version.split()[0]
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["cache"]["directory"] == str(tmp_path) and facts["cache"]["data_sets"] == ["mine"]
    written = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert facts["cache"]["bytes"] == written > 120


def test_without_compiler_browser_and_home_it_says_what_is_lost(tmp_path: Path) -> None:
    text = doctor(PATH=str(tmp_path), CC="", ISFL_CACHE=str(tmp_path / "nowhere"))
    found = {line.split()[0]: line for line in text.splitlines()}
    assert "no C compiler found (tried $CC, cc, gcc, clang): torch's are used" in found["convolutions"]
    assert "no Chromium or Chrome: needed only for" in found["browser"]
    assert f"{tmp_path / 'nowhere'}, 0.0 MB" in found["cache"]
    assert "none: in the cache" in found["data"]


def test_every_fact_is_one_line_with_a_meaning() -> None:
    whole = lines(FACTS)
    assert whole["convolutions"] == (
        "/usr/bin/cc, vectors of 16 float32",
        "3x3 convolutions are compiled for this processor",
    )
    assert whole["cache"][0] == "/home/me/.cache/isfl, 2.5 MB" and whole["data sets"][0] == "cifar10"
    assert whole["Flower"] == ("1.41.0", "--engine flower and isfl flower work")
    assert whole["browser"] == ("/usr/bin/chromium", "the tests of the report in a browser can run")
    assert whole["CUDA"] == ("0 devices", "runs use the CPU")
    assert all(value and meaning for value, meaning in whole.values())


def test_missing_parts_are_shown_with_an_install_command() -> None:
    bare = lines(replace(FACTS, flower=False, flower_simulation=False, cache=None, browser_tests=False))
    assert bare["Flower"] == ("not installed", "for --engine flower: pip install 'isfl[flower]'")
    assert bare["ray"] == ("not installed", "for Flower's simulation: pip install 'isfl[flower]'")
    assert bare["cache"] == ("no home directory", "set ISFL_CACHE to keep data sets and compiled code")
    assert bare["browser"][0] == "Playwright is missing"
    assert "data sets" not in bare
