"""Shell completion: in a real bash, and as zsh and fish ask for it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from isfl.cli import completion
from isfl.data import SOURCES
from isfl.experiment.reproduce import EXPERIMENTS
from isfl.federation.scheme import SHORTHANDS


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `isfl` is this checkout, with a cache of its own."""
    script = tmp_path / "bin/isfl"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom isfl.cli import main\nmain()\n", encoding="utf-8")
    script.chmod(0o755)
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ISFL_CACHE": str(tmp_path / "cache")}


def completed(environment: dict[str, str], *lines: str) -> list[set[str]]:
    """Return what bash offers at the end of each line; a space at the end begins a new word."""
    script = ['eval "$(_ISFL_COMPLETE=source_bash isfl)"']
    for line in lines:
        words = [*shlex.split(line), *([""] if line.endswith(" ") else [])]
        script.append(f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _isfl_completion isfl")
        script.append('echo "${COMPREPLY[*]}"')
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", "\n".join(script)], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0 and done.stderr == ""
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_bash_completes_commands_options_and_names(environment: dict[str, str]) -> None:
    commands, options, schemes, second, experiments, scales, data = completed(
        environment,
        "isfl re",
        "isfl compare --s",
        "isfl compare a.toml --schemes ",
        "isfl compare a.toml --schemes fedavg,is",
        "isfl reproduce ",
        "isfl reproduce table2 --scale ",
        "isfl data get cifar",
    )
    assert commands == {"report", "reproduce", "resume"}
    assert options == {"--schemes", "--seeds", "--set"}
    assert schemes == {*SHORTHANDS, "all"}
    assert second == {"fedavg,isfl", "fedavg,isfedavg"}
    assert experiments == set(EXPERIMENTS)
    assert scales == {"smoke", "quick", "half", "paper"}
    assert data == {name for name in SOURCES if name.startswith("cifar")}


def test_names_come_from_the_cache_until_a_file_of_the_package_changes(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completion.complete_schemes("") == [*SHORTHANDS, "all"]
    assert completion.complete_schemes("isfl,") == [f"isfl,{name}" for name in SHORTHANDS if name != "isfl"]
    monkeypatch.setattr(completion, "_imported_names", lambda: {"schemes": ["new"]})
    assert completion.complete_schemes("") == [*SHORTHANDS, "all"]
    monkeypatch.setattr(completion, "_stamp", lambda: ["later"])
    assert completion.complete_schemes("") == ["new", "all"]
    (own_cache / completion.FILE).write_text("damaged")
    assert completion.complete_schemes("") == ["new", "all"]
    assert json.loads((own_cache / completion.FILE).read_text())["stamp"] == ["later"]


def test_a_key_press_imports_nothing_heavy_once_names_are_known(environment: dict[str, str]) -> None:
    completed(environment, "isfl compare --schemes is")
    code = (
        "import sys; from isfl.cli.completion import complete_schemes; complete_schemes('');"
        "print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_and_answers(shell: str, environment: dict[str, str]) -> None:
    def asked(**variables: str) -> str:
        done = subprocess.run(["isfl"], env={**environment, **variables}, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0 and done.stderr == ""
        return done.stdout

    assert f"complete_{shell}" in asked(_ISFL_COMPLETE=f"source_{shell}")
    question = {"_TYPER_COMPLETE_ARGS": "isfl compare a.toml --schemes cal", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert "calibrated" in asked(_ISFL_COMPLETE=f"complete_{shell}", **question)
