"""Following a deployed run by its events, without processes: reading, waiting, and error messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from isfl.engines.flower.apps import DEFAULTS
from isfl.errors import UserError
from isfl.experiment import flower_app, submission
from isfl.experiment.events import EventReader, EventWriter
from isfl.experiment.submission import Submitted, follow


def test_events_are_read_once_in_order_and_only_whole(tmp_path: Path) -> None:
    writer, reader = EventWriter(tmp_path / "events.jsonl"), EventReader(tmp_path / "events.jsonl")
    assert not reader.begun and reader.new() == []
    writer.write("message", "waiting for clients")
    writer.write("round", {"round": 1})
    assert reader.new() == [("message", "waiting for clients"), ("round", {"round": 1})]
    with reader.file.open("a") as stream:
        stream.write('{"finished": ')
    assert reader.new() == []
    with reader.file.open("a") as stream:
        stream.write('"runs/a"}\n')
    assert reader.new() == [("finished", "runs/a")]


def test_a_server_app_on_another_machine_writes_no_events(tmp_path: Path) -> None:
    EventWriter(tmp_path / "not here" / "events.jsonl").write("round", {})
    EventWriter(None).write("round", {})
    assert list(tmp_path.iterdir()) == []


def statuses(*answers: str | None) -> Iterator[str | None]:
    yield from answers
    raise AssertionError("asked again after the run was over")


@pytest.mark.parametrize(
    "answers",
    [
        ("starting", "running", "finished:failed"),
        ("running", None, None, None),
        (None, None, "running", "finished:stopped"),
    ],
)
def test_following_ends_with_the_run_or_when_the_superlink_is_silent(
    answers: tuple[str | None, ...], tmp_path: Path
) -> None:
    events, asked, said = EventReader(tmp_path / "events.jsonl"), statuses(*answers), list[str]()
    assert list(follow(events, lambda: next(asked), said.append, seconds=0)) == []
    assert sum("on another machine" in line for line in said) == 1


def test_the_last_events_are_not_lost_when_the_run_ends_between_two_reads(tmp_path: Path) -> None:
    events = EventReader(tmp_path / "events.jsonl")

    def status() -> str:
        EventWriter(events.file).write("finished", "runs/a")
        return "finished:completed"

    assert list(follow(events, status, print, seconds=0)) == [("finished", "runs/a")]


class FakeRun(Submitted):
    def status(self) -> str | None:
        return "finished:failed (exit code 1)"


def submitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *happened: tuple[str, Any], run: type[Submitted] = FakeRun
) -> tuple[Path, list[Any], list[str]]:
    """Submit a run whose server app reports these events."""
    monkeypatch.setattr(submission, "named", lambda connection: ("isfl", None))
    monkeypatch.setattr(submission, "STATUS_SECONDS", 0)
    monkeypatch.setattr(follow, "__defaults__", (0,))

    def started(given: dict[str, Any], scratch: Path, name: str, home: Path | None) -> Submitted:
        for kind, content in happened:
            EventWriter(Path(given["events"])).write(kind, content)
        return run("12345", name, home)

    monkeypatch.setattr(submission, "_started", started)
    lines, said = list[Any](), list[str]()
    return submission.submit_resume(tmp_path / "run", "here", lines.append, said.append), lines, said


def test_rounds_and_messages_are_forwarded_until_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    happened = [("message", "hello"), ("round", {"round": 1}), ("finished", "elsewhere/run"), ("round", {"round": 9})]
    assert submitted(monkeypatch, tmp_path, *happened) == (Path("elsewhere/run"), [{"round": 1}], ["hello"])


def test_an_error_at_the_server_is_the_users_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^data\.path: no such file$"):
        submitted(monkeypatch, tmp_path, ("error", "data.path: no such file"))


def test_a_run_that_ends_early_says_its_status_and_how_to_resume(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = r"finished:failed \(exit code 1\); see flwr log 12345\); "
    with pytest.raises(UserError, match=ended + "if .*run exists at the server, resume it, else run again"):
        submitted(monkeypatch, tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(UserError, match=ended + "resume with isfl resume .*run"):
        submitted(monkeypatch, tmp_path, ("round", {"round": 1}))


def test_a_run_on_another_machine_ends_with_its_directory_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Completed(Submitted):
        def status(self) -> str | None:
            return "finished:completed"

    assert submitted(monkeypatch, tmp_path, run=Completed)[0] == tmp_path / "run"


def test_the_server_app_reports_a_mistake_and_keeps_it_an_error(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    config = {**DEFAULTS, "events": str(file), "out": str(tmp_path / "run"), "set": "training.rounds=0"}
    context = Context(1, 1, {}, RecordDict(), config)
    with pytest.raises(UserError):
        flower_app.main(None, context)  # type: ignore[arg-type]
    kinds = [json.loads(line) for line in file.read_text().splitlines()]
    assert list(kinds[-1]) == ["error"] and "training.rounds" in kinds[-1]["error"]
