"""Each way to use isfl, followed on its page from an empty folder: every command of the page, in its order.

Training is shortened to one round and one epoch. Other journeys have their tests elsewhere: the loop of one's own and
the examples in `test_documents.py`, the notebook in `test_notebook.py`, Flower in `test_flower*.py`, the paper's
experiments in `test_reproduce.py`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import pages
from tests.commands import isfl
from tests.pages import ROOT

SHORT = ("--set", "training.rounds=1", "--set", "training.local_epochs=1")
TRAINING = {"run", "compare"}
ELSEWHERE = {"reproduce", "flower"}


def prepare(page: Path, folder: Path) -> None:
    """Write the files that the page shows and that no command of it writes, and those that a reader of it has."""
    written = {"experiment.toml"} if ["init"] in pages.commands(page, "isfl") else set()
    for block in pages.blocks(page):
        if block.file and block.file not in written:
            (folder / block.file).write_text(block.text, encoding="utf-8")
    shutil.copyfile(ROOT / "examples/counts.csv", folder / "counts.csv")
    generator = np.random.default_rng(0)
    for part, count in (("train", 90), ("test", 20)):
        for level, name in ((60, "cat"), (200, "dog")):
            (folder / "photos" / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = generator.integers(level - 50, level + 50, (16, 16, 3), np.uint8)
                Image.fromarray(pixels).save(folder / "photos" / part / name / f"{i}.png")


def follow(page: Path, folder: Path) -> list[list[str]]:
    """Run the page's commands in the folder; return those that were run."""
    prepare(page, folder)
    done = []
    for words in pages.commands(page, "isfl"):
        if ELSEWHERE & set(words):
            continue
        result = isfl(*words, *(SHORT if TRAINING & set(words) else ()), cwd=folder)
        assert result.returncode == 0, (words, result.stderr)
        assert "Traceback" not in result.stderr, words
        done.append(words)
    return done


def test_the_readme_is_followed_from_a_configuration_to_figures(tmp_path: Path) -> None:
    assert len(follow(ROOT / "README.md", tmp_path)) >= 8
    assert (tmp_path / "report.html").exists() and list((tmp_path / "figures").glob("*.pdf"))
    assert len(list((tmp_path / "runs").glob("experiment-*/comparison.png"))) == 2
    write_shown(tmp_path / "experiment.toml")
    assert isfl("run", "experiment.toml", *SHORT, cwd=tmp_path).returncode == 0


def write_shown(file: Path) -> None:
    """Write the configuration that the README shows."""
    (block,) = (block for block in pages.blocks(ROOT / "README.md") if block.file == file.name)
    file.write_text(block.text, encoding="utf-8")


def test_the_quick_start_is_followed_from_init_to_a_comparison_of_all_schemes(tmp_path: Path) -> None:
    follow(ROOT / "docs/quickstart.md", tmp_path)
    assert (tmp_path / "experiment.toml").exists() and (tmp_path / "split.png").exists()
    assert "cat" in (tmp_path / "my.toml").read_text(encoding="utf-8")
    assert (tmp_path / "first.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    schemes = {path.name for path in (tmp_path / "runs").glob("first-*/*") if path.is_dir()}
    assert {"fedavg", "calibrated", "isfl+floor", "shrunk", "centralized"} <= schemes
    for configuration in ("experiment.toml", "my.toml"):  # what init wrote runs as it is
        assert isfl("run", configuration, *SHORT, cwd=tmp_path).returncode == 0


def test_own_data_models_and_transforms_are_run_as_their_page_has_them(tmp_path: Path) -> None:
    page = ROOT / "docs/own.md"
    prepare(page, tmp_path)
    script = "\n".join(block.text for block in pages.programs(page) if not block.not_run and not block.file)
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=400)
    configurations = sorted(path.name for path in tmp_path.glob("*.toml"))
    assert {"mine.toml", "functions.toml", "augmented.toml"} <= set(configurations)
    for name in configurations:
        result = isfl("run", name, *SHORT, "--out", f"runs/{name}", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert (tmp_path / "runs" / name / "model.safetensors").exists()


def test_a_diagnosis_needs_nothing_but_counts(tmp_path: Path) -> None:
    page = ROOT / "docs/diagnose.md"
    write_shown(tmp_path / "experiment.toml")
    assert len(follow(page, tmp_path)) == 4
    assert (tmp_path / "diagnosis.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/diagnose.md"])
def test_a_page_of_a_journey_has_commands(page: str) -> None:
    """A page whose commands were no longer found would be followed without a step."""
    assert len(list(pages.commands(ROOT / page, "isfl"))) >= 4
