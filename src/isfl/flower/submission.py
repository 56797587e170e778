"""Runs on a Flower deployment: hand them in, follow their log, stop them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isfl.errors import UserError
from isfl.experiment.config import Config
from isfl.experiment.run import OnRound
from isfl.flower.app import MARK, app_files
from isfl.flower.deployment import CONNECTION, FLOWER_HOME
from isfl.flower.processes import environment, program

STOPPING = 60.0
"""Seconds to ask for a stop, at most."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"(?:started run|run(?:_id)?[ =:]+)\s*(\d{5,})", re.IGNORECASE)


def submit(config: Config, out: Path, connection: str, on_round: OnRound, tell: Callable[[str], None]) -> Path:
    """A new run on the deployment behind a Flower connection. The run directory is written where the SuperLink is."""
    # An absolute path, so that the run can be resumed from anywhere.
    known = connection
    if named(connection)[1] is not None:  # a federation on this machine, but with another working directory
        known = str(Path(connection).absolute())
        if config.data.path is not None:
            path = str(Path(config.data.path).absolute())
            config = config.model_copy(update={"data": config.data.model_copy(update={"path": path})})
    given = {"config": config.model_dump_json(), "out": str(out.absolute()), "connection": known}
    return _follow(given, connection, on_round, tell)


def submit_resume(out: Path, connection: str, on_round: OnRound, tell: Callable[[str], None]) -> Path:
    """The next part of a run that was stopped."""
    return _follow({"resume": True, "out": str(out.absolute())}, connection, on_round, tell)


def _follow(given: dict[str, Any], connection: str, on_round: OnRound, tell: Callable[[str], None]) -> Path:
    (name, home), out = named(connection), given["out"]
    with tempfile.TemporaryDirectory(prefix="isfl-") as scratch:
        app = Path(scratch) / "isfl"
        app.mkdir()
        for file, content in app_files().items():
            (app / file).write_text(content, encoding="utf-8")
        settings = Path(scratch) / "run.toml"
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in given.items()]
        settings.write_text("".join(lines), encoding="utf-8")
        command = [program("flwr"), "run", str(app), name, "--stream", "--run-config", str(settings)]
        process = subprocess.Popen(
            command,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        log = Log()
        try:
            finished = _listen(process.stdout, log, on_round, tell)
        except KeyboardInterrupt:
            _stop(log, name, home)
            raise
        finally:
            process.kill()
            process.wait(timeout=STOPPING)
            process.stdout.close()
    if finished is None:
        raise UserError(
            f"connection {connection!r}: the run ended before its last round ({log.last_words}); resume with isfl "
            f"resume {out}"
        )
    return finished


@dataclass
class Log:
    """What is known of a run from its log."""

    number: str | None = None
    others: list[str] = field(default_factory=list)
    """Lines that are not for programs, should they be needed to explain an end."""

    @property
    def last_words(self) -> str:
        return " / ".join(self.others[-3:]) or "it said nothing"


def _listen(lines: Iterable[str], log: Log, on_round: OnRound, tell: Callable[[str], None]) -> Path | None:
    """Hand on what the server app says to programs, up to the end: the run directory, or None if it is not finished."""
    for line in lines:
        plain = _COLOUR.sub("", line).strip()
        if log.number is None and (found := _NUMBER.search(plain)):
            log.number = found[1]
        for said in _said(plain, log.others):
            if "round" in said:
                on_round(said["round"])
            elif "told" in said:
                tell(said["told"])
            elif "error" in said:
                raise UserError(said["error"])
            elif "finished" in said:
                return Path(said["finished"])
    return None


def _stop(log: Log, name: str, home: Path | None) -> None:
    """Stop the run at the server, where it would go on."""
    if log.number is not None:
        command = [program("flwr"), "stop", log.number, name]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=environment(home), capture_output=True, timeout=STOPPING)


def _said(line: str, others: list[str]) -> Iterator[dict[str, Any]]:
    """What a line says to programs; other lines are kept."""
    before, mark, after = line.partition(f"{MARK} ")
    if mark:
        with suppress(ValueError):
            yield json.loads(after)
    elif before:
        others.append(before)


def named(connection: str) -> tuple[str, Path | None]:
    """A connection's name and the Flower home that knows it: a directory of `isfl flower up`, or a name of Flower's."""
    directory = Path(connection)
    if (directory / FLOWER_HOME / "config.toml").is_file():
        return CONNECTION, (directory / FLOWER_HOME).absolute()
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    known = home / "config.toml"
    if not known.is_file() or f"[superlink.{connection}]" not in known.read_text(encoding="utf-8"):
        raise UserError(
            f"--connection {connection}: neither a directory that isfl flower up made, nor [superlink.{connection}] in "
            f"{known}"
        )
    return connection, None
