"""`isfl diagnose`: what it prints, its options, and mistakes in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from isfl.cli import main
from isfl.diagnose.input import split_of
from isfl.problem.config import config_from
from isfl.problem.problem import prepare
from tests.commands import isfl
from tests.pages import ROOT
from tests.worlds import written

EXAMPLE = ROOT / "examples/counts.csv"


@pytest.mark.parametrize("public_from", ["unused", "all"])
def test_the_counts_of_a_configuration_are_those_its_run_trains_on(public_from: str) -> None:
    raw = {"data": {"public": 900, "public_from": public_from}, "split": {"clients": 5, "shard_size": 100}}
    config = config_from(raw, "test")
    of_the_run = [data.class_counts.tolist() for data in prepare(config).clients]
    assert split_of(config, "test").counts.tolist() == of_the_run


def test_names_are_shown_verbatim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Terminal markup, formulas, line breaks and colour codes in names have no effect."""
    path = written(tmp_path, 'client,[/b],$\\x$,"two\nlines"\n[red]a,9,1,5\n\x1b[31mb,1,9,5\n')
    with pytest.raises(SystemExit) as ending:
        main(["diagnose", str(path), "--picture", str(tmp_path / "d.png")])
    shown = capsys.readouterr().out
    assert ending.value.code in (0, None) and (tmp_path / "d.png").exists()
    assert (
        all(name in shown for name in ("│ [/b]", "│ $\\x$", "│ two lines", "│ [red]a", "│ [31mb"))
        and "\x1b" not in shown
    )


def test_the_command_on_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs/diagnose.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- transcript -->\n```text\n\$ isfl diagnose examples/counts.csv\n(.*?)```", page, re.DOTALL)
    result = isfl("diagnose", str(EXAMPLE), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert shown == ["".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())]
    assert "…" not in result.stdout


def test_the_command_on_a_configuration_with_every_option(tmp_path: Path) -> None:
    config = "[data]\nname='digits'\npublic=50\n[split]\nkind='dirichlet'\nsamples_per_client=100\n"
    written(tmp_path, config, "c.toml")
    options = ("--set", "split.clients=5", "--target", "uniform", "--floor", "0.1", "--target-floor", "0.5")
    values = ("--lipschitz", ",".join(["1", "2"] * 5))
    result = isfl("diagnose", "c.toml", *options, *values, "--picture", "d.png", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert len(found["clients"]) == 5 and found["target"] == {"kind": "uniform"} and found["floor"] == 0.1
    assert found["draws"]["isfl"]["rho"] >= found["draws"]["minimum"]["rho"]
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("c.csv", "--set", "seed=1"), "--set seed=1: c.csv holds counts"),
        (("c.csv", "--target", "here"), "--target here: write global, uniform, or one share per class"),
        (("c.csv", "--target", "0.5,0.4"), "--target 0.5,0.4: write global"),
        (("c.csv", "--target", "0.5,0.3,0.2"), "target.shares has shape (3,): give 2 numbers"),
        (("c.csv", "--floor", "0.7", "--target-floor", "0.7"), "--floor 0.7 --target-floor 0.7: together"),
        (("c.csv", "--floor", "2"), "--floor"),
        (("none.toml",), "none.toml: no such file"),
        (("none.csv",), "none.csv: no such file"),
        (("own.toml",), "own.toml: flower.own_data = true: clients hold their own data"),
        (("c.csv", "--picture", "nowhere/d.png"), "nowhere/d.png: the picture cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    told: str,
) -> None:
    written(tmp_path, "5,6\n70,8\n")
    written(tmp_path, "[flower]\nown_data = true\nclients = 2\n", "own.toml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ending:
        main(["diagnose", *arguments])
    error = capsys.readouterr().err
    assert ending.value.code == 2 and told in error and len(error.splitlines()) == 1
