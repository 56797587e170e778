"""The Flower app of this project, for `flwr run` and for `isfl run --engine flower --connection NAME`.

The server app writes the run directory on the machine it runs on and reports each round in its log, one line of JSON
after `MARK`, from which the command that started the run follows it.
"""

from __future__ import annotations

import json
import tomllib
import uuid
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from isfl.errors import UserError
from isfl.experiment.config import Config, apply, config_from, demo_config
from isfl.experiment.directory import RunDirectory, refuse_used
from isfl.experiment.run import prepare
from isfl.flower.client import client_app
from isfl.flower.messages import Connection
from isfl.flower.node import default_state
from isfl.flower.server import go_on_run, new_run

MARK = "isfl>"
"""Begins the lines of the log that are for programs."""

OWN: dict[str, Any] = {"config": "", "set": "", "out": "", "resume": False, "connection": ""}
"""Keys of the run configuration that are not keys of an experiment."""
DEFAULTS: dict[str, Any] = {
    **OWN,
    "scheme": "",
    "seed": 0,
    "data.name": "",
    "split.clients": 0,
    "training.rounds": 0,
    "training.local_epochs": 0,
    "training.batch_size": 0,
}
"""The run configuration that can be overridden; what is empty or 0 is left to `config`."""

client = client_app()
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """A new run, or (`resume`) the next part of one."""
    told = context.run_config
    try:
        if told.get("resume"):
            out = Path(str(told["out"]))
            run = str(RunDirectory.open(out).engine.get("run", ""))
            go_on_run(out, Connection(grid, run, _tell), _on_round)
        else:
            run = uuid.uuid4().hex
            out = Path(str(told["out"])) if told.get("out") else default_state() / "runs" / run
            refuse_used(out)
            where = {"kind": "deployment", "run": run, "connection": str(told.get("connection", ""))}
            config = configuration(told)
            new_run(config, prepare(config), out, Connection(grid, run, _tell), _on_round, where)
    except UserError as error:
        _say({"error": str(error)})
        raise
    _say({"finished": str(out)})


def configuration(told: Mapping[str, Any]) -> Config:
    """`config` (JSON, or a TOML file at the server; default: the demo's), then the keys given by name, then `set`."""
    text = str(told.get("config", ""))
    if text.lstrip().startswith("{"):
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise UserError(f"config: is not valid JSON ({error})") from None
    elif text:
        try:
            raw = tomllib.loads(Path(text).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"config = {text!r}: cannot be read ({error})") from None
    else:
        raw = demo_config().model_dump(mode="json")
    for key in DEFAULTS.keys() - OWN.keys():
        if value := told.get(key):
            apply(raw, f"{key}={json.dumps(value)}")
    for change in str(told.get("set", "")).split(";"):
        if change.strip():
            apply(raw, change.strip())
    return config_from(raw, "run configuration")


def app_files() -> dict[str, str]:
    """All of the app's folder: a `pyproject.toml` that makes it known to Flower; the code is in the package."""
    settings = "\n".join(f"{key} = {json.dumps(value)}" for key, value in DEFAULTS.items())
    content = f"""[project]
name = "isfl"
version = "{version("isfl")}"
description = "Federated learning on label-skewed clients with local importance sampling (ISFL)"
license = "Apache-2.0"
dependencies = ["isfl[flower]"]

[tool.flwr.app]
publisher = "isfl"

[tool.flwr.app.components]
serverapp = "isfl.flower.app:server"
clientapp = "isfl.flower.app:client"

[tool.flwr.app.config]
{settings}
"""
    return {"pyproject.toml": content}


def _on_round(line: dict[str, Any]) -> None:
    _say({"round": line})


def _tell(line: str) -> None:
    _say({"told": line})


def _say(content: dict[str, Any]) -> None:
    print(f"{MARK} {json.dumps(content)}", flush=True)
