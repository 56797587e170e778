"""Adding a choice is adding a file and one line: done here, in a copy of the package, as CONTRIBUTING.md shows it.

Each example of CONTRIBUTING.md is a file and the line of a list that names it; the run after it uses the new choice.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/isfl"
TINY = """
[data]
public = 40
[split]
clients = 3
shard_size = 20
[model]
name = "mlp"
width = 0.25
[training]
rounds = 2
local_epochs = 1
batch_size = 16
"""
EXAMPLE = re.compile(
    r"`(?P<file>\w+\.py)` beside the others, named in `FILES` of `(?P<list>[\w/]+\.py)`:\n\n"
    r"```python\n(?P<text>.*?)```\n\nUsed as `(?P<use>[^\n]*)`\.",
    re.DOTALL,
)


def examples() -> dict[str, re.Match[str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {str(Path(match["list"]).parent / match["file"]): match for match in EXAMPLE.finditer(text)}


def test_the_page_has_an_example_for_every_room_of_choices() -> None:
    rooms = {Path(file).parent.name for file in examples()}
    assert rooms == {"sampling_rules", "objectives", "aggregations"}


@pytest.mark.parametrize("file", examples())
def test_one_file_and_one_line_make_a_new_choice(file: str, tmp_path: Path) -> None:
    example = examples()[file]
    package = tmp_path / "isfl"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    new, listed = package / file, package / example["list"]
    assert not new.exists()
    new.write_text(example["text"], encoding="utf-8")
    before = listed.read_text(encoding="utf-8")
    after = before.replace("FILES = (\n", f'FILES = (\n    "{new.stem}",\n', 1)
    assert len(after.splitlines()) == len(before.splitlines()) + 1
    listed.write_text(after, encoding="utf-8")
    (tmp_path / "own.toml").write_text(f"{example['use']}\n{TINY}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "isfl.cli", "run", "own.toml", "--out", "run", "--jobs", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run/config.json").read_text())
    kinds = {config["scheme"][part][key] for part, key in (("sampling", "rule"), ("objective", "kind"))}
    kinds.add(config["scheme"]["aggregation"]["rule"])
    assert new.stem.replace("_", "-") in kinds
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 2
