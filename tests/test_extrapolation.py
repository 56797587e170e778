"""The extrapolation to ten million clients in docs/scaling.md follows from measurements under results/."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from isfl.errors import UserError
from isfl.federation.secure.settings import SecureAggregation, check_participants

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
EACH = (100, 1000)
"""Participants per round of the two columns."""


def measured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "results" / "performance" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def row(begin: str) -> list[str]:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip(" |").split("|")][1:]


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_memory_and_seconds_of_the_server_are_those_of_one_participant_multiplied() -> None:
    wire = measured("wire")
    (model,) = {number(r["payload in bytes"]) for r in wire["rows"] if r["message"] == "train: answer"}
    average, lipschitz = map(float, re.findall(r"([\d.]+) to (?:average|measure)", wire["notes"][1]))
    assert row("server memory for the updates") == [f"{n * model / 1e9:.2g} GB" for n in EACH]
    assert row("server seconds per round to average") == [f"{n * average:.2g}" for n in EACH]
    cells = row("Lipschitz values at the server")
    assert all(cell.startswith(f"{n * lipschitz:,.0f} seconds") for n, cell in zip(EACH, cells, strict=True))
    simulated = measured("million")["rows"][-1]["seconds per round"]
    assert row("seconds per round of a simulation") == [f"{n / 1000 * simulated:.2g}" for n in EACH]


def test_the_cost_of_secure_aggregation_is_that_of_one_client_multiplied() -> None:
    found = measured("secure")
    phases = [r for r in found["rows"] if r["neighbours"] == 100 and r["parameters"] == "500,000"]
    own = sum(float(r["CPU seconds of a client"]) for r in phases)
    assert row("`[secure]`, 100 neighbours") == [f"{own:.3f}"] * 2
    (note,) = [note for note in found["notes"] if "100 neighbours and 500,000" in note]
    stay, lost = map(float, re.findall(r"([\d.]+) (?:to remove|if 10%)", note))
    assert row("`[secure]`: server seconds") == [f"{n * stay:.2g} / {n * lost:.2g}" for n in EACH]
    down = sum(number(r["bytes down"]) for r in phases) / 1e6
    up = sum(number(r["bytes up"]) for r in phases if r["phase"] != "training") / 1e6
    assert row("`[secure]`: traffic") == [f"{n * down:.2g} MB down, {_two(n * up)} MB up" for n in EACH]


def _two(value: float) -> str:
    return f"{value:#.2g}".removesuffix(".")


def test_the_bits_are_those_that_are_accepted() -> None:
    for each, cell in zip(EACH, row("`[secure]`: largest"), strict=True):
        bits = int(cell.split()[0])
        check_participants(SecureAggregation(bits=bits), each, each)
        with pytest.raises(UserError, match=rf"use {bits} or less"):
            check_participants(SecureAggregation(bits=bits + 1), each, each)
