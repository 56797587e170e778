"""The supported versions and systems are the tested ones."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from isfl.cli import main

ROOT = Path(__file__).parent.parent


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def required() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(name for part in project["optional-dependencies"].values() for name in part)]


@pytest.mark.parametrize("requirement", sorted(set(required())))
def test_the_oldest_version_that_is_promised_is_the_one_that_is_tested(requirement: str) -> None:
    found = re.match(r"([\w-]+)(?:\[\w+\])?(?:>=|==)([\d.]+)", requirement)
    assert found is not None, requirement
    name, lowest = found.groups()
    assert f"{pins()[name]}.".startswith(f"{lowest}.")


def test_windows_is_refused_in_one_line_and_not_by_an_import_that_fails() -> None:
    code = """
        import sys
        from isfl.cli import main
        sys.platform = "win32"
        sys.modules["fcntl"] = None
        main(["data", "list"])
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: isfl runs on Linux and macOS; on Windows, run it in WSL")


def test_help_and_version_work_everywhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    for option, text in (("--help", "Usage"), ("--version", "isfl 0.1")):
        with pytest.raises(SystemExit) as ending:
            main([option])
        assert ending.value.code in (0, None) and text in capsys.readouterr().out


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_federation_of_processes_needs_linux(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit) as ending:
        main(["flower", command, "--dir", str(tmp_path)])
    assert ending.value.code == 2 and "need Linux" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
