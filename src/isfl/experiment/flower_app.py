"""The Flower app of this project, for `flwr run` and for `isfl run --engine flower --connection NAME`.

The server app writes the run directory on the machine it runs on, and reports what happens in a file of events
(`events.py`) if the run configuration names one.
"""

from __future__ import annotations

import json
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from isfl.engines.flower.apps import DEFAULTS, OWN
from isfl.engines.flower.client import client_app
from isfl.engines.flower.messages import Connection
from isfl.engines.flower.node import default_state
from isfl.errors import UserError
from isfl.experiment.demo import demo_config
from isfl.experiment.directory import RunDirectory, refuse_used
from isfl.experiment.events import EventWriter
from isfl.experiment.flower_runs import FlowerHost
from isfl.experiment.run import resume, run
from isfl.problem.config import Config, apply, config_from

client = client_app()
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Start a new run, or (`resume`) resume one."""
    given = context.run_config
    events = EventWriter(Path(str(given["events"])) if given.get("events") else None)
    events.write("message", "the server app has started")
    try:
        out = _serve(given, grid, events)
    except UserError as error:
        events.write("error", str(error))
        raise
    events.write("finished", str(out))


def _serve(given: Mapping[str, Any], grid: Grid, events: EventWriter) -> Path:
    """Run to the last round and return the run directory."""
    resumed, key = bool(given.get("resume")), uuid.uuid4().hex
    out = Path(str(given["out"])) if given.get("out") else default_state() / "runs" / key
    if resumed:
        record = RunDirectory.open(out).engine
    else:
        refuse_used(out)
        record = {"kind": "deployment", "run": key, "connection": str(given.get("connection", ""))}
    connection = Connection(grid, str(record.get("run", "")), lambda text: events.write("message", text))
    host = FlowerHost(connection, record)

    def on_round(line: dict[str, Any]) -> None:
        events.write("round", line)

    if resumed:
        resume(out, on_round, host)
    else:
        run(configuration(given), out, on_round, host)
    return out


def configuration(given: Mapping[str, Any]) -> Config:
    """`config` (JSON, or a TOML file at the server; default: the demo's), then the keys given by name, then `set`."""
    text = str(given.get("config", ""))
    if text.lstrip().startswith("{"):
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"config: is not valid JSON ({error})") from None
    elif text:
        try:
            raw = tomllib.loads(Path(text).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"config = {text!r}: cannot be read ({error})") from None
    else:
        raw = demo_config().model_dump(mode="json")
    for key in DEFAULTS.keys() - OWN.keys():
        if value := given.get(key):
            apply(raw, f"{key}={json.dumps(value)}")
    for change in str(given.get("set", "")).split(";"):
        if change.strip():
            apply(raw, change.strip())
    return config_from(raw, "run configuration")
