"""A few tries of every fault, a few inputs of every kind, and campaigns that report what they find."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks.machine import ROOT
from campaigns import commands, damage, disk, fuzz, kills, run
from campaigns.children import HUNG_SECONDS, Child, Ending
from campaigns.kinds import DAMAGE, DISKS, KILLS, OTHERS
from campaigns.operations import in_turn, kind_of_file
from campaigns.reference import reference
from campaigns.targets import TARGETS, Target, trees
from campaigns.verdicts import GOOD, Judged, Kind, Verdict, chance_of
from typer.core import TyperGroup
from typer.main import get_command

from isfl.cli import app
from isfl.errors import UserError
from isfl.kernels.compiler import PATIENCE
from tests.worlds import module_at

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


def test_every_command_and_every_table_is_among_the_malformed_inputs() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    groups = {name: sub for name, sub in group.commands.items() if isinstance(sub, TyperGroup)}
    known = {name for name in group.commands if name not in groups}
    known |= {f"{name} {sub}" for name, part in groups.items() for sub in part.commands}
    assert known - set(commands.NAMES) == set()
    for table in ("secure", "stragglers", "privacy", "attack"):
        assert any(tree[table] not in (None, {"kind": "none"}) for tree in trees()), table


@pytest.mark.parametrize("words", [["reproduce", "table2"], ["data", "get", "cifar10"]], ids=" ".join)
def test_no_command_downloads_or_needs_data_of_this_machine(
    words: list[str], tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isfl.data.cifar.shutil.which", lambda name: pytest.fail(f"{name} would download"))
    commands.command(words, tmp_path)
    assert not own_cache.exists()


# ---------------------------------------------------------------- the campaigns themselves


def _differs(number: int, chance: object, scratch: Path) -> Judged:
    return Judged(Verdict.DIFFERENT if number == 1 else Verdict.SAME, f"try {number}", faults=2)


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
    assert json.loads((tmp_path / "group.json").read_text())["arguments"] == ["--quick", "--out", str(tmp_path)]
    assert "| a fault | 3 | - | 6 | 2 |" in capsys.readouterr().out


def _malformed(chance: object, scratch: Path) -> None:
    assert hasattr(chance, "random")
    match int(10 * chance.random()):
        case 0:
            raise KeyError("a bug")
        case 1:
            raise MemoryError
        case 2:
            os._exit(3)
        case 3:
            time.sleep(30)
        case 4:
            with contextlib.suppress(BaseException):
                time.sleep(30)
        case 6:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # as compiled code does
            time.sleep(30)
        case 5:
            raise UserError("error: not enough memory (no room); use fewer --jobs")


def test_tracebacks_crashes_and_hangs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    outcomes = fuzz.fuzz("b", Target("b", 1, _malformed), 17, 0, None, time.monotonic() + 60)
    expected = {0: "traceback", 1: "too large", 2: "crash", 3: "too slow", 4: "too slow", 5: "too large", 6: "crash"}
    drawn = [int(10 * chance_of(0, "b", number).random()) for number in range(17)]
    assert expected.keys() <= set(drawn)
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


def test_every_kind_has_its_turn_before_any_has_its_second() -> None:
    kinds = [*"aaaaaaaaaa", *"bbb", "c"]
    order = in_turn(kinds)
    assert sorted(order) == list(range(14))
    assert {kinds[place] for place in order[:3]} == {*"abc"} and {kinds[place] for place in order[3:5]} == {*"ab"}


def test_every_operation_and_every_damage_is_tried_and_the_row_says_how_many_there_are(tmp_path: Path) -> None:
    kind = Kind("a fault", lambda scratch: 5, 2, _differs)
    (row,) = run.campaign({"fault": kind}, False, 0, run.Clock(60, [kind]))["rows"]
    assert (row["tries"], row["possible"]) == (5, 5)
    (row,) = run.campaign({"fault": kind}, True, 0, run.Clock(60, [kind]))["rows"]
    assert (row["tries"], row["possible"]) == (2, 5)


def test_every_kind_of_file_of_a_stopped_run_is_cut_and_flipped(scratch: Path) -> None:
    known = reference(scratch)
    cases = damage.cases(known.stopped)
    early = {(way, kind_of_file(str(file))) for file, way in cases[: len(cases) // 2]}
    kinds = {kind_of_file(str(file)) for file, _ in cases}
    assert {"checkpoints/round-#.safetensors", "clients/client-#-round-#.safetensors"} <= kinds
    assert {"metrics.jsonl", "probabilities.jsonl", "config.json", "checksums.json"} <= kinds
    assert early >= {(way, kind) for way in ("flip", "cut") for kind in kinds}


@pytest.mark.parametrize("lanes", [1, 2])
def test_no_try_begins_that_would_not_end_in_time(lanes: int, tmp_path: Path) -> None:
    def slow(number: int, chance: object, scratch: Path) -> Judged:
        time.sleep(0.3)
        return Judged(Verdict.SAME, "")

    began = time.monotonic()
    found = run.attempts("slow", Kind("", 50, 1, slow, lanes=lanes), 50, 0, tmp_path, began + 1.0)
    assert lanes <= len(found) <= 3 * lanes and time.monotonic() - began < 1.1


def test_deployed_runs_are_killed_beside_the_others_and_their_result_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    class Beside:
        def __init__(self, command: list[str], cwd: Path) -> None:
            started.append(command[3:])

        def wait(self) -> int:
            return len(started) - 1

    monkeypatch.setattr("campaigns.run.Popen", Beside)
    kind = {"fault": Kind("a fault", 1, 1, _differs)}
    groups = {"group": ("Some faults", kind), "deployed": ("Deployed", kind)}
    assert run.main(["--out", str(tmp_path)], groups) == 0
    assert run.main(["--out", str(tmp_path), "--seed", "3", "--minutes", "2"], groups) == 1
    assert started[0] == ["--only", "deployed", "--out", str(tmp_path)]
    assert started[1] == ["--only", "deployed", "--seed", "3", "--minutes", "2.0", "--out", str(tmp_path)]
    assert not (tmp_path / "deployed.json").exists()


@pytest.mark.parametrize(("campaign", "known"), [(run, next(iter(LOCAL))), (fuzz, next(iter(TARGETS)))])
@pytest.mark.parametrize(
    ("option", "given", "told"),
    [
        ("--only", "none", "--only: there is no 'none'; choose from "),
        ("--repeat", "none/1", "--repeat: there is no 'none'; choose from "),
        ("--repeat", "{}", "--repeat {}: write the number of a try, such as {}/0"),
    ],
)
def test_a_name_that_is_not_known_is_one_line_and_exit_code_2(
    campaign: ModuleType, known: str, option: str, given: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        campaign.main([option, given.format(known)])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
    assert told.format(known, known) in line


# ---------------------------------------------------------------- faults that did not take place


def test_only_faults_that_took_place_are_counted(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = reference(scratch)
    for name, ending in {"exit 0": Ending(0, ""), "exit 2": Ending(2, "error: no space\n")}.items():
        monkeypatch.setattr(disk, "resumed", lambda *_: Judged(Verdict.SAME, ""))
        assert disk.after(known, scratch, ending, name).faults == (ending.code != 0)
    monkeypatch.setattr(kills, "on_operation", lambda place, act: None)  # nothing is killed
    assert run.attempt("kill-in-write", KILLS["kill-in-write"], 0, 0, scratch).faults == 0
    monkeypatch.setattr(Child, "workers", lambda child: [])
    monkeypatch.setattr(kills, "_wait", lambda condition, seconds: None)
    assert run.attempt("kill-one", KILLS["kill-one"], 0, 0, scratch).faults == 0


def test_a_damaged_data_set_is_fetched_again_which_gives_the_same_bits(scratch: Path) -> None:
    for number in range(15):
        judged = run.attempt("damage-cache", DAMAGE["damage-cache"], number, 0, scratch)
        assert (judged.verdict, judged.faults) == (Verdict.SAME, 1)


def test_a_run_that_compiles_is_not_taken_for_hung_on_a_busy_machine(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = []

    def command(arguments: object, fault: object, seconds: float = HUNG_SECONDS) -> Ending:
        waited.append(seconds)
        return Ending(2, "error: none\n")

    monkeypatch.setattr(damage, "command", command)
    monkeypatch.setattr(damage, "_damaged_copy", lambda *_: (scratch, "nothing"))
    monkeypatch.setattr(damage, "_cache_with_library", lambda place: place)
    run.attempt("damage-library", DAMAGE["damage-library"], 0, 0, scratch)
    assert waited == [HUNG_SECONDS + PATIENCE] and PATIENCE >= 600


# ---------------------------------------------------------------- what is published


def test_a_quick_campaign_leaves_the_published_results_alone() -> None:
    assert run.results(None, quick=False) == ROOT / "results/reliability"
    assert ROOT / "results" not in run.results(None, quick=True).parents
    for target in ("chaos", "fuzz"):
        made = [_make(target), _make(target, "QUICK=1")]
        assert ["publish_reliability" in commands for commands in made] == [True, False]


def _make(*words: str) -> str:
    done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout  # under `make test` its last line is "Leaving directory"


def test_the_page_names_the_command_that_made_a_table() -> None:
    publish = module_at(ROOT / "scripts/publish_reliability.py")
    limited = {"quick": False, "arguments": ["--only", "kills", "--minutes", "9"]}
    assert publish.command_of(limited, "kills") == "make chaos CHAOS='--only kills --minutes 9'"
    assert publish.command_of({"quick": True, "arguments": ["--quick"]}, "kills") == "make chaos QUICK=1"
    assert publish.command_of({"quick": False, "arguments": []}, "fuzz") == "make fuzz"
    assert publish.command_of({"quick": False}, "kills") == "make chaos CHAOS='--only kills'"  # of earlier results
