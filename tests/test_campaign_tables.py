"""The published tables of both campaigns hold what was promised, and every fault that was found has its test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from campaigns.fuzz import ENDINGS, SECONDS
from campaigns.fuzz import GOOD as ACCEPTED
from campaigns.kinds import GROUPS
from campaigns.targets import TARGETS
from campaigns.verdicts import GOOD, Verdict

ROOT = Path(__file__).parent.parent
BAD = [verdict.value for verdict in Verdict if verdict not in GOOD]
FAULTS = (
    *("SIGKILL at a random time", "workers", "in a file operation", "server app, client app, SuperLink, SuperNode"),
    *("disk full from a file operation on", "disk full in the middle of a write", "file system of"),
    *("file cut, emptied, removed, bit flipped", "finished run", "cached data set", "compiled library"),
    *("clock set back", "processes on one run", "memory limit of the workers"),
)
INPUTS = (
    *("configurations", "command lines", "class counts", "npz", "pictures", "run directories", "published numbers"),
    *("messages to a client", "replies to the server", "doubled and replayed"),
)


def published(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((ROOT / f"results/reliability/{name}.json").read_text(encoding="utf-8"))
    return result


def test_every_promised_fault_and_input_has_a_kind() -> None:
    faults = [kind.title for _, kinds in GROUPS.values() for kind in kinds.values()]
    for words, titles in ((FAULTS, faults), (INPUTS, [target.title for target in TARGETS.values()])):
        assert [word for word in words if not any(word in title for title in titles)] == []


@pytest.mark.parametrize("group", GROUPS)
def test_no_published_run_was_lost_or_differs_silently(group: str) -> None:
    result = published(group)
    assert [row["fault"] for row in result["rows"]] == [kind.title for kind in GROUPS[group][1].values()]
    assert result["missed"] == [] == result["notes"] and not result["quick"]
    for row in result["rows"]:
        assert sum(row[ending] for ending in BAD) == 0 < row["faults"], row
        assert row["tries"] == sum(row[verdict.value] for verdict in GOOD) and row["tries"] >= (row["possible"] or 0)


def test_more_than_a_hundred_random_kills_and_twenty_of_deployed_runs_are_published() -> None:
    random = [row["faults"] for row in published("kills")["rows"] if row["possible"] is None]
    assert sum(random) >= 100 and sum(row["faults"] for row in published("deployed")["rows"]) >= 20


def test_ten_thousand_malformed_inputs_are_published_and_none_has_a_traceback_or_breaks_a_limit() -> None:
    result = published("fuzz")
    assert [row["input"] for row in result["rows"]] == [target.title for target in TARGETS.values()]
    assert sum(row["inputs"] for row in result["rows"]) >= 10_000 and result["missed"] == [] and not result["quick"]
    for row in result["rows"]:
        assert sum(row[ending] for ending in ENDINGS if ending not in ACCEPTED) == 0, row
        assert row["slowest in seconds"] <= SECONDS and row["most memory in MB"] <= 2048, row


def test_every_fault_that_was_found_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    found = page[page.index("## Faults found and fixed") : page.index("## Not covered")]
    rows = [line for line in found.splitlines() if line.startswith("|")][2:]
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").glob("test_*.py"))
    assert len(rows) > 10
    for row in rows:
        assert re.findall(r"`(test_\w+)`", row.rpartition(" | ")[2]), row
    assert [name for name in re.findall(r"`(test_\w+)`", found) if f"def {name}(" not in tests] == []
