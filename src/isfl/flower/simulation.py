"""A run on Flower's simulation, in this process: the same run directory, checkpoints and bits as the local engine."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from isfl import layout
from isfl.errors import UserError
from isfl.experiment.config import Config, config_from
from isfl.experiment.directory import RunDirectory, refuse_used
from isfl.experiment.run import OnRound, Problem, prepare
from isfl.flower.client import client_app
from isfl.flower.messages import Connection, StoppedError
from isfl.flower.node import Node, simulated_node
from isfl.flower.server import go_on_run, new_run

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def simulate(config: Config, out: Path, on_round: OnRound, tell: Callable[[str], None], workers: int) -> None:
    """A new run with one simulated node a client, `workers` of them at work at a time."""
    refuse_used(out)
    run = uuid.uuid4().hex

    def serve(problem: Problem, connection: Connection) -> None:
        new_run(config, problem, out, connection, on_round, {"kind": "simulation", "run": run})

    _simulate(config, out, run, serve, tell, workers)


def resume_simulation(out: Path, on_round: OnRound, tell: Callable[[str], None], workers: int) -> None:
    """Go on with a simulated run that was stopped."""
    directory = RunDirectory.open(out)
    config = config_from(directory.config, str(out / layout.CONFIG))
    run = str(directory.engine["run"])

    def serve(problem: Problem, connection: Connection) -> None:
        go_on_run(out, connection, on_round, problem)

    _simulate(config, out, run, serve, tell, workers)


def _simulate(
    config: Config,
    out: Path,
    run: str,
    serve: Callable[[Problem, Connection], None],
    tell: Callable[[str], None],
    workers: int,
) -> None:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if config.flower.own_data:
        raise UserError("flower.own_data = true: nodes with data of their own are a deployment; give --connection")
    if find_spec("ray") is None:
        raise UserError("--engine flower needs Flower's simulation; pip install 'isfl[flower]'")
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    problem = prepare(config)
    state, stop = (out / layout.NODES).absolute(), threading.Event()
    failures: list[Exception] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(problem, Connection(grid, run, tell, stop.is_set, state))
        except (UserError, StoppedError) as error:  # Flower would print them with their traceback
            failures.append(error)

    cpus: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False}
    try:
        run_simulation(
            server_app=server,
            client_app=client_app(partial(_node, state)),
            num_supernodes=len(problem.clients),
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": cpus},
        )
    except RuntimeError as error:
        if "Ending simulation" not in str(error):  # a fault of ours, not Flower's word for a fault of its own
            raise
        raise UserError(f"Flower's simulation ended ({error}); resume with isfl resume {out}") from error
    finally:
        stop.set()  # the server's thread would go on without clients
    if failures:
        raise failures[0]


def _node(state: Path, context: Context) -> Node:
    return simulated_node(int(context.node_config["partition-id"]), state)
