"""Every published number names a commit of the history, or one that `results/squashed.json` explains."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
EXPLAINED = ROOT / "results" / "squashed.json"
"""Commits that were measured and later squashed: each with the commit that has its changes, and the reason why its
numbers were kept."""
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def history() -> frozenset[str]:
    """All ancestors of HEAD, HEAD included."""
    try:
        shallow = git("rev-parse", "--is-shallow-repository")
    except OSError:
        pytest.skip("there is no git on this machine")
    if shallow.returncode != 0:
        pytest.skip("this is not a git clone: there is no history to look commits up in")
    if shallow.stdout.strip() == "true":
        pytest.skip("this is a shallow clone: the history is not complete")
    return frozenset(git("rev-list", "HEAD").stdout.split())


def explained() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(EXPLAINED.read_text(encoding="utf-8"))
    return found


def commits_in(value: Any) -> Iterator[str]:
    """Yield the values of all keys `commit`, without the mark of uncommitted changes."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "commit" and isinstance(inner, str):
                yield inner.removesuffix("+")
            else:
                yield from commits_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from commits_in(inner)


def recorded() -> dict[Path, set[str]]:
    """Return the commits that each file of results names."""
    files = [file for file in sorted((ROOT / "results").rglob("*.json")) if file != EXPLAINED]
    found = {file: set(commits_in(json.loads(file.read_text(encoding="utf-8")))) for file in files}
    return {file: commits for file, commits in found.items() if commits}


def quoted(page: Path) -> set[str]:
    return set(re.findall(r"commit `([0-9a-f]{7,40})", page.read_text(encoding="utf-8")))


def test_every_commit_that_results_name_is_in_the_history_or_explained(history: frozenset[str]) -> None:
    known = history | explained().keys()
    unknown = {str(file.relative_to(ROOT)): commits - known for file, commits in recorded().items() if commits - known}
    assert unknown == {}


def test_every_commit_that_a_page_quotes_is_in_the_history_or_explained(history: frozenset[str]) -> None:
    known = history | explained().keys()
    for page in PAGES:
        unknown = {short for short in quoted(page) if not any(commit.startswith(short) for commit in known)}
        assert unknown == set(), page


def test_an_explanation_is_needed_used_and_names_the_commit_that_has_the_changes(history: frozenset[str]) -> None:
    used = set().union(*recorded().values())
    for commit, why in explained().items():
        assert commit in used, f"{commit}: no result names it any more; remove it from {EXPLAINED.name}"
        assert commit not in history, f"{commit}: is in the history; remove it from {EXPLAINED.name}"
        assert why["squashed_into"] in history and why["reason"].endswith("."), commit


def test_a_page_with_numbers_of_a_squashed_commit_says_so() -> None:
    """A page shows a file of results between two marks that have its name."""
    shown = {
        file.parent.name if file.name == "provenance.json" else file.stem
        for file, commits in recorded().items()
        if commits & explained().keys()
    }
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        affected = {name for name in shown if f"<!-- {name} -->" in text or f"<!-- {name}-table -->" in text}
        affected |= {short for short in quoted(page) if any(commit.startswith(short) for commit in explained())}
        assert bool(affected) == ("results/squashed.json" in text), f"{page.name} shows {sorted(affected)}"
