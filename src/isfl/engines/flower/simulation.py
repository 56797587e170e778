"""Flower's simulation in this process: every client is a node, served by Ray actors."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from isfl.engines.flower.client import client_app
from isfl.engines.flower.messages import Connection, StoppedError
from isfl.engines.flower.node import Node, simulated_node
from isfl.errors import UserError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def simulate_nodes(
    serve: Callable[[Connection], None],
    clients: int,
    run: str,
    state: Path,
    tell: Callable[[str], None],
    workers: int,
) -> None:
    """Call `serve` with a connection to `clients` simulated nodes, of which `workers` compute at a time.

    `run` is the key under which nodes store their states, in the directory `state`.
    """
    if find_spec("ray") is None:
        raise UserError("--engine flower needs Flower's simulation; pip install 'isfl[flower]'")
    from flwr.simulation import run_simulation

    stop = Event()
    failures: list[Exception] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(Connection(grid, run, tell, stop.is_set, state))
        except (UserError, StoppedError) as error:  # Flower would print them with their traceback
            failures.append(error)

    cpus: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False}
    try:
        with _quiet():
            run_simulation(
                server_app=server,
                client_app=client_app(partial(_node, state)),
                num_supernodes=clients,
                backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": cpus},
            )
    except RuntimeError as error:
        if "Ending simulation" not in str(error):  # our bug, not an error that Flower reports
            raise
        raise UserError(f"Flower's simulation ended ({error}); resume with isfl resume") from error
    finally:
        stop.set()  # otherwise the server's thread would continue without clients
    if failures:
        raise failures[0]


def _node(state: Path, context: Context) -> Node:
    return simulated_node(int(context.node_config["partition-id"]), state)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Flower and ray; the environment and the log level are restored afterwards."""
    logger, added = logging.getLogger("flwr"), QUIET.keys() - os.environ.keys()
    level = logger.level
    os.environ.update({name: QUIET[name] for name in added})
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name in added:
            os.environ.pop(name, None)
