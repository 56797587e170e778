"""Shared parts of the tests of `isfl reproduce`."""

from __future__ import annotations

import pytest

from isfl.experiment.paper_setting import Setting
from tests.commands import exit_code

INTERPRETATIONS = ("text", "authors", "published")


def setting(scale: str, interpretation: str = "published", clients: int | None = None) -> Setting:
    return Setting(scale, interpretation, clients)  # type: ignore[arg-type]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line with which `isfl reproduce` refuses these arguments."""
    capsys.readouterr()
    assert exit_code("reproduce", *arguments) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and errors.startswith("error: ")
    return errors
