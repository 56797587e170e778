"""In every page, links have targets, configurations are valid, programs run, and commands exist."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import typer

from isfl.cli import app
from isfl.problem.config import config_from
from tests import pages
from tests.pages import PAGES, ROOT

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
PREPARED = "own.md"
"""A page whose configurations use data and models that its programs write."""


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in pages.links(page):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in pages.anchors(target), f"{path}#{anchor}"


@each_page
def test_configurations_are_valid(page: Path) -> None:
    for block in pages.blocks(page):
        if block.language == "toml":
            config_from(tomllib.loads(block.text), page.name)


@pytest.mark.parametrize("page", [p for p in PAGES if any(pages.programs(p))], ids=lambda p: p.name)
def test_programs_run(page: Path, tmp_path: Path) -> None:
    """In the order of the page, in a directory with the files that the page names."""
    for block in pages.blocks(page):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    script = "\n".join(block.text for block in pages.programs(page) if not block.not_run and not block.file)
    if page.name == PREPARED:
        script += "\nfrom pathlib import Path\nfrom isfl.problem.config import load_config\n"
        script += "from isfl.problem.problem import prepare\n"
        script += "for file in Path('.').glob('*.toml'):\n    prepare(load_config(file))\n"
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert result.returncode == 0, result.stderr


@each_page
def test_programs_that_are_not_run_say_why_and_use_existing_names(page: Path) -> None:
    for block in pages.programs(page):
        if block.not_run:
            assert len(block.not_run.split()) > 2, "say why"
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    assert all(hasattr(importlib.import_module(node.module), alias.name) for alias in node.names)


def command_of(arguments: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that the words name, and its arguments."""
    command: click.Command = typer.main.get_command(app)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        assert arguments[0] in command.commands, f"there is no command {arguments[0]!r}"
        command, arguments = command.commands[arguments[0]], arguments[1:]
    return command, arguments


@each_page
def test_commands_are_valid(page: Path) -> None:
    for words in pages.commands(page, "isfl"):
        plain = [word.strip("[]") for word in words]  # a synopsis marks what may be left out
        command, arguments = command_of(["1" if word == "N" else word for word in plain])
        command.make_context("isfl", arguments)  # parses, and complains like the command line


@each_page
def test_commands_in_sentences_and_their_options_exist(page: Path) -> None:
    for words in pages.mentioned(page, "isfl"):
        command, arguments = command_of(words)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in arguments if word.startswith("-")} <= known | {"--help"}, words


@each_page
def test_targets_of_make_and_scripts_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for words in [*pages.commands(page, "make"), *pages.mentioned(page, "make")]:
        assert words[0] in targets, words
    for words in pages.commands(page, "python"):
        file = f"{words[1].replace('.', '/')}.py" if words[0] == "-m" else words[0]
        assert file == "-" or (ROOT / file).is_file(), words


def test_files_named_for_contributors_exist() -> None:
    text = pages.prose(ROOT / "CONTRIBUTING.md")
    files = re.findall(r"`([\w/]+/[\w]+\.py)`", text)
    assert len(files) > 10
    for file in files:
        assert (ROOT / file).is_file() or (ROOT / "src/isfl" / file).is_file(), file
