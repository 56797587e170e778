"""A few tries of every fault, a few inputs of every kind, and campaigns that report what they find."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from campaigns import fuzz, run
from campaigns.children import Ending
from campaigns.kinds import DAMAGE, DISKS, KILLS, OTHERS
from campaigns.operations import spread
from campaigns.targets import TARGETS, Target
from campaigns.verdicts import GOOD, Judged, Kind, Verdict, chance_of

LOCAL = {**KILLS, **DISKS, **DAMAGE, **OTHERS}
TRIES = {"kill-in-write": 3, "no-space": 3, "damage": 4, "damage-finished": 3, "damage-cache": 4}
"""Others make one."""
INPUTS = {"configuration": 60, "command": 20, "counts": 20, "npz": 40, "picture": 20, "to-server": 30, "round": 1}
"""Others make ten."""


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the undisturbed run is, for all kinds."""
    return tmp_path_factory.mktemp("campaign")


@pytest.mark.parametrize("name", [name for name in LOCAL if name != "damage-library"])
@pytest.mark.filterwarnings("ignore:.*is damaged")
def test_nothing_is_lost_and_nothing_differs_silently(name: str, scratch: Path) -> None:
    """`test_damage.py` has a damaged library, which takes seconds to compile."""
    kind = LOCAL[name]
    if (reason := kind.why_not()) is not None:
        pytest.skip(reason)
    for number in range(TRIES.get(name, 1)):
        judged = run.attempt(name, kind, number, seed=0, scratch=scratch)
        assert judged.verdict in GOOD, f"{name}/{number}: {judged}"


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_gives_a_traceback_a_hang_or_a_crash(name: str) -> None:
    outcomes = fuzz.fuzz(name, TARGETS[name], INPUTS.get(name, 10), 0, None, time.monotonic() + 100)
    assert [one for one in outcomes if one.ending not in fuzz.GOOD] == []
    assert len(outcomes) == INPUTS.get(name, 10)


# ---------------------------------------------------------------- the campaigns themselves


def _differs(number: int, chance: object, scratch: Path) -> Judged:
    return Judged(Verdict.DIFFERENT if number == 1 else Verdict.SAME, f"try {number}")


def test_a_silent_difference_is_counted_named_by_its_number_and_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = Kind("a fault", 3, 1, _differs)
    absent = Kind("another", 3, 1, _differs, why_not=lambda: "it rains")
    groups = {"group": ("Some faults", {"fault": kind, "absent": absent})}
    assert run.main(["--out", str(tmp_path)], groups) == 1
    written = json.loads((tmp_path / "group.json").read_text())
    (row,) = written["rows"]
    assert (row["tries"], row["same bits"], row["silently different"], row["lost"]) == (3, 2, 1, 0)
    assert written["missed"] == ["fault/1: silently different: try 1"]
    assert written["notes"] == ["another: left out, because it rains."] and written["seed"] == 0
    assert run.main(["--repeat", "fault/1"], groups) == 1 and run.main(["--repeat", "fault/2"], groups) == 0
    assert run.main(["--quick", "--out", str(tmp_path)], groups) == 0
    assert "| a fault | 3 | 3 | 2 |" in capsys.readouterr().out


def _malformed(chance: object, scratch: Path) -> None:
    assert hasattr(chance, "random")
    match int(10 * chance.random()):
        case 0:
            raise KeyError("a bug")
        case 1:
            raise MemoryError
        case 2:
            import os

            os._exit(3)
        case 3:
            time.sleep(30)


def test_tracebacks_crashes_and_hangs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    outcomes = fuzz.fuzz("b", Target("b", 1, _malformed), 9, 0, None, time.monotonic() + 60)
    expected = {0: "traceback", 1: "too large", 2: "crash", 3: "too slow"}
    drawn = [int(10 * chance_of(0, "b", number).random()) for number in range(9)]
    assert {0, 1, 2, 3} <= set(drawn)
    assert [one.ending for one in outcomes] == [expected.get(number, "accepted") for number in drawn]


@pytest.mark.parametrize(
    ("code", "errors", "clear"),
    [
        (2, "error: x: found 3; write 4\n", True),
        (2, "warning: careful\nerror: x\n", True),
        (2, "Traceback (most recent call last):\nerror: x\n", False),
        (2, "error: x\nand more\n", False),
        (1, "error: x\n", False),
        (-9, "", False),
    ],
)
def test_a_clear_refusal_is_exit_code_2_and_one_line(code: int, errors: str, clear: bool) -> None:
    assert (Ending(code, errors).error_line is not None) == clear


@pytest.mark.parametrize("total", [61, 156, 67 * 61])
def test_as_many_tries_as_there_are_operations_reach_each(total: int) -> None:
    assert {spread(number, total) for number in range(total)} == set(range(total))
