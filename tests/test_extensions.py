"""Adding a choice is adding a file and one line: done here, in a copy of the package, as CONTRIBUTING.md shows it.

Each example of CONTRIBUTING.md is a file (or a class for a file) and the line of a list that names it. The run after it
uses the new choice and has another result than the same run without it.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/isfl"
TINY = {
    "data": ("data.public=40",),
    "split": ("split.clients=3", "split.shard_size=20"),
    "model": ("model.name=mlp", "model.width=0.25"),
    "training": ("training.rounds=2", "training.local_epochs=1", "training.batch_size=16"),
}
"""Overrides for a short run; those of a table whose kind the example chooses are left out."""
CODE = r"\n\n(?:<!-- [^\n]* -->\n)?```python\n(?P<text>.*?)```\n\nUsed as `(?P<use>[^\n]*)`\."
NEW_FILE = re.compile(
    r"`(?P<file>\w+\.py)` beside the others, named in `FILES` of `(?P<list>[\w/]+\.py)`:" + CODE, re.S
)
NEW_CLASS = re.compile(r"In `(?P<list>[\w/]+\.py)`, named in `(?P<names>[A-Z]+)` there:" + CODE, re.S)
KINDS = {
    "federation/sampling_rules/__init__.py",
    "federation/objectives/__init__.py",
    "federation/aggregations/__init__.py",
    "federation/attacks/__init__.py",
    "federation/optimizers/__init__.py",
    "federation/schedules.py",
    "data/splits/__init__.py",
    "data/transforms/__init__.py",
    "data/sources/__init__.py",
    "models/__init__.py",
    "trackers/__init__.py",
    "theory/probabilities.py",
    "smoothness/estimate.py",
}
"""Where the lists of choices are."""


@dataclass(frozen=True)
class Example:
    """One kind of extension, as the page shows it."""

    list: str
    """The file with the list of choices."""
    names: str
    """The name of that list."""
    entry: str
    """The line that is added to it."""
    text: str
    file: str | None
    """The new file; None where the text becomes part of the file with the list."""
    use: str
    """A line of TOML, or an option of `isfl run`."""

    @property
    def name(self) -> str:
        """What a configuration calls the choice."""
        return self.entry.strip('"').replace("_", "-").lower()

    @property
    def change(self) -> dict[str, int]:
        """The added lines of each file: the new file and one line, or the new class (two empty lines) and one line."""
        lines = self.text.count("\n")
        if self.file is None:
            return {self.list: lines + 2 + 1}
        return {str(Path(self.list).parent / self.file): lines, self.list: 1}

    def add_to(self, package: Path) -> None:
        listed = package / self.list
        content = listed.read_text(encoding="utf-8")
        if self.file is None:
            start = content.index(f"\n{self.names}: ")
            content = f"{content[:start]}\n{self.text}\n{content[start:]}"
        else:
            new = package / Path(self.list).parent / self.file
            assert not new.exists()
            new.write_text(self.text, encoding="utf-8")
        head = re.search(rf"^{self.names}\b[^\n]* = \(\n", content, re.M)
        assert head is not None, f"{self.list} has no list {self.names} with one name per line"
        content = f"{content[: head.end()]}    {self.entry},\n{content[head.end() :]}"
        listed.write_text(content, encoding="utf-8")


def examples() -> list[Example]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = [
        Example(m["list"], "FILES", f'"{Path(m["file"]).stem}"', m["text"], m["file"], m["use"])
        for m in NEW_FILE.finditer(text)
    ]
    classes = [
        Example(m["list"], m["names"], m["text"].split("(")[0].removeprefix("class "), m["text"], None, m["use"])
        for m in NEW_CLASS.finditer(text)
    ]
    return files + classes


def test_the_page_has_an_example_for_every_kind_of_choice() -> None:
    assert {example.list for example in examples()} >= KINDS


def changed_lines(package: Path) -> dict[str, int]:
    """Return the number of added and removed lines of every file that differs from the package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        name = str(path.relative_to(package))
        old = PACKAGE / name
        lines = old.read_text(encoding="utf-8").splitlines() if old.exists() else []
        difference = list(difflib.unified_diff(lines, path.read_text(encoding="utf-8").splitlines(), lineterm="", n=0))
        count = sum(line[0] in "+-" and line[:3] not in ("+++", "---") for line in difference)
        if count:
            found[name] = count
    return found


PROGRAM = f"""
import runpy, sys
from isfl.cli import main
print(runpy.run_path({str(ROOT / "scripts/write_configuration.py")!r})["page"]())
main(sys.argv[1:])
"""
"""Print the documentation of the configuration, then run a command."""


def run_with(package: Path, use: str, out: Path) -> str:
    """Run a tiny configuration with a copy of the package; return the documentation of its configuration."""
    options, toml = (use.split(), "") if use.startswith("--") else ([], use)
    (out.parent / "own.toml").write_text(toml, encoding="utf-8")
    chosen = {table for table, keys in tomllib.loads(toml).items() if {"kind", "name"} & set(keys)}
    tiny = [value for table, values in TINY.items() if table == "data" or table not in chosen for value in values]
    command = [sys.executable, "-c", PROGRAM, "run", "own.toml", "--out", str(out), "--jobs", "1", *options]
    done = subprocess.run(
        command + [argument for value in tiny for argument in ("--set", value)],
        cwd=out.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(run: Path) -> list[float]:
    return [json.loads(line)["train_loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def holds(config: Any, given: Any) -> bool:
    """Whether a configuration as resolved says what a user wrote; a word is short for a table of that kind."""
    if isinstance(given, dict):
        return all(holds(config[key], value) for key, value in given.items())
    if isinstance(given, list):
        return len(config) == len(given) and all(map(holds, config, given))
    return bool((config["kind"] if isinstance(config, dict) else config) == given)


@pytest.fixture(scope="module")
def plain_losses(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    out = tmp_path_factory.mktemp("plain") / "run"
    run_with(PACKAGE, "", out)
    return losses(out)


@pytest.mark.parametrize("example", examples(), ids=lambda e: e.list)
def test_one_file_and_one_line_make_a_new_choice(example: Example, tmp_path: Path, plain_losses: list[float]) -> None:
    package, out = tmp_path / "isfl", tmp_path / "run"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    example.add_to(package)
    assert changed_lines(package) == example.change
    page = run_with(package, example.use, out)
    assert len(losses(out)) == 2
    if example.list.startswith("trackers"):
        assert (out / "rounds.txt").read_text() == "".join(f"{i + 1} {loss}\n" for i, loss in enumerate(losses(out)))
        return
    assert holds(json.loads((out / "config.json").read_text()), tomllib.loads(example.use))
    assert losses(out) != plain_losses
    assert re.search(rf"""["`]{example.name}["`]""", page), "the documentation of the configuration names the choice"
