"""Runs on a Flower deployment: submit them, follow their events, stop them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isfl.engines.flower.access import log_in
from isfl.engines.flower.apps import app_files
from isfl.engines.flower.deployment import CONNECTION, FLOWER_HOME
from isfl.engines.flower.processes import environment, program
from isfl.errors import UserError
from isfl.experiment.events import EventReader
from isfl.experiment.run import OnRound
from isfl.problem.config import Config

COMMAND_SECONDS = 60.0
"""How long one command of Flower may take."""
POLL_SECONDS = 0.2
STATUS_SECONDS = 10.0
"""How often to ask for the run's status while there are no new events."""
SILENT_STATUSES = 3
"""After this many questions without an answer, the SuperLink is gone."""
REFUSED = "Authentication failed"
"""What Flower says when a SuperLink refuses a token, or a call without one."""

Tell = Callable[[str], None]


def submit(config: Config, out: Path, connection: str, on_round: OnRound, tell: Tell) -> Path:
    """Run on the deployment behind a Flower connection; the run directory is written where the SuperLink is."""
    known = connection
    if named(connection)[1] is not None:  # on this machine, but with another working directory
        known = str(Path(connection).absolute())
        if config.data.path is not None:
            path = str(Path(config.data.path).absolute())
            config = config.model_copy(update={"data": config.data.model_copy(update={"path": path})})
    given = {"config": config.model_dump_json(), "out": str(out.absolute()), "connection": known}
    return _run(given, connection, on_round, tell)


def submit_resume(out: Path, connection: str, on_round: OnRound, tell: Tell) -> Path:
    """Resume an interrupted run of a deployment."""
    return _run({"resume": True, "out": str(out.absolute())}, connection, on_round, tell)


@dataclass(frozen=True)
class Submitted:
    """A run that a SuperLink has accepted."""

    number: str
    name: str
    """Of the connection."""
    home: Path | None
    """The Flower home that knows it."""

    def status(self) -> str | None:
        """Return Flower's status, such as `running` or `finished:failed (details)`; None without an answer."""
        with suppress(UserError, subprocess.TimeoutExpired, LookupError):
            content = _flwr("list", self.name, "--run-id", self.number, home=self.home)
            found = content["runs"][0]
            details = found["status-details"]
            return f"{found['status']} ({details})" if details != "N/A" else str(found["status"])
        return None

    def stop(self) -> None:
        """Stop the run at the server, where it would go on."""
        with suppress(UserError, subprocess.TimeoutExpired):
            _flwr("stop", self.number, self.name, home=self.home)


def _run(given: dict[str, Any], connection: str, on_round: OnRound, tell: Tell) -> Path:
    name, home = named(connection)
    with tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        events = EventReader(Path(scratch) / "events.jsonl")
        run = _started({**given, "events": str(events.file)}, Path(scratch), name, home)
        try:
            for kind, content in follow(events, run.status, tell):
                match kind:
                    case "round":
                        on_round(content)
                    case "message":
                        tell(content)
                    case "error":
                        raise UserError(content)
                    case "finished":
                        return Path(content)
        except KeyboardInterrupt:
            run.stop()
            raise
        status = run.status() or "unknown: the SuperLink does not answer"
        if not events.begun and status.startswith("finished:completed"):
            return Path(given["out"])  # on the machine of the SuperLink
    out = Path(given["out"])
    then = (
        f"resume with isfl resume {out}"
        if out.exists()
        else f"if {out} exists at the server, resume it, else run again"
    )
    raise UserError(
        f"connection {connection!r}: the run ended before its last round (its status is {status}; see flwr log "
        f"{run.number}); {then}"
    )


def follow(
    events: EventReader, status: Callable[[], str | None], tell: Tell, seconds: float = STATUS_SECONDS
) -> Iterator[tuple[str, Any]]:
    """Yield events until the run is over or the SuperLink no longer answers."""
    asked, unanswered, told = time.monotonic(), 0, False
    while True:
        if found := events.new():
            asked = time.monotonic()
            yield from found
        elif time.monotonic() < asked + seconds:
            time.sleep(POLL_SECONDS)
        else:
            answer, asked = status(), time.monotonic()
            unanswered = unanswered + 1 if answer is None else 0
            if unanswered == SILENT_STATUSES or (answer or "").startswith("finished"):
                yield from events.new()
                return
            if (answer or "").startswith("running") and not events.begun and not told:
                tell("the SuperLink is on another machine: its rounds are written there; follow them with flwr log")
                told = True


def _started(given: dict[str, Any], scratch: Path, name: str, home: Path | None) -> Submitted:
    app = scratch / "isfl"
    app.mkdir()
    for file, content in app_files().items():
        (app / file).write_text(content, encoding="utf-8")
    settings = scratch / "run.toml"
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in given.items()]
    settings.write_text("".join(lines), encoding="utf-8")
    answer = _flwr("run", str(app), name, "--run-config", str(settings), home=home)
    return Submitted(str(answer["run-id"]), name, home)


def _flwr(*arguments: str, home: Path | None) -> dict[str, Any]:
    """Run a command of Flower that answers in JSON."""
    command = [program("flwr"), *arguments, "--format", "json"]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=COMMAND_SECONDS)
    try:
        answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        answer = {"success": False, "error-message": " ".join((done.stdout + done.stderr).split())[-300:]}
    if not answer.get("success"):
        if REFUSED in str(answer.get("error-message")):
            raise UserError(
                f"flwr {arguments[0]}: the SuperLink refused the call, which has no valid token; get one from its "
                "operator, then isfl flower login CONNECTION TOKENFILE"
            )
        raise UserError(f"flwr {arguments[0]}: {answer.get('error-message') or answer.get('note') or 'failed'}")
    return answer


def store_token(connection: str, token: Path) -> Path:
    """Store a token for a connection in the Flower home that knows it; return that home."""
    name, home = named(connection)
    home = home or _user_home()
    file = home / "config.toml"
    try:
        address = str(tomllib.loads(file.read_text(encoding="utf-8"))["superlink"][name]["address"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file}: superlink.{name}.address cannot be read ({error})") from None
    try:
        text = token.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UserError(f"{token}: cannot be read ({error.strerror})") from None
    log_in(home, address, text)
    return home


def _user_home() -> Path:
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")


def named(connection: str) -> tuple[str, Path | None]:
    """Return a connection's name and the Flower home that knows it.

    A connection is a directory of `isfl flower up`, or a name in the user's Flower configuration.
    """
    directory = Path(connection)
    if (directory / FLOWER_HOME / "config.toml").is_file():
        return CONNECTION, (directory / FLOWER_HOME).absolute()
    known = _user_home() / "config.toml"
    if not known.is_file() or f"[superlink.{connection}]" not in known.read_text(encoding="utf-8"):
        raise UserError(
            f"--connection {connection}: neither a directory that isfl flower up made, nor [superlink.{connection}] in "
            f"{known}"
        )
    return connection, None
