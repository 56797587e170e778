"""Runs whose clients are Flower nodes: simulated in this process, or connected through a grid.

The run directory, its checkpoints and the bits of the model are those of a local run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isfl import layout
from isfl.engines.flower.engine import FlowerEngine
from isfl.engines.flower.messages import Connection
from isfl.engines.flower.simulation import simulate_nodes
from isfl.engines.threads import one_thread
from isfl.errors import UserError
from isfl.experiment.directory import RunDirectory, refuse_used
from isfl.experiment.run import OnRound, resume, run
from isfl.problem.config import Config, config_from
from isfl.problem.problem import Problem, prepare


@dataclass(frozen=True)
class FlowerHost:
    """The nodes of a Flower federation."""

    connection: Connection
    record: Mapping[str, Any]
    lock_seconds: float = 60.0
    """The server app of a killed SuperLink lives on until it notices, and holds the run directory."""

    def engine(self, problem: Problem, config: Config, directory: Path) -> FlowerEngine:
        return FlowerEngine(problem, config, self.connection)


def simulate(config: Config, out: Path, on_round: OnRound, tell: Callable[[str], None], workers: int) -> None:
    """Start a new run with one simulated node per client, of which `workers` compute at a time."""
    refuse_used(out)
    record = {"kind": "simulation", "run": uuid.uuid4().hex}

    def serve(problem: Problem, connection: Connection) -> None:
        run(config, out, on_round, FlowerHost(connection, record), problem)

    _simulate(config, out, record["run"], serve, tell, workers)


def resume_simulation(out: Path, on_round: OnRound, tell: Callable[[str], None], workers: int) -> None:
    """Resume an interrupted simulation; the result is bit-identical."""
    directory = RunDirectory.open(out)
    config = config_from(directory.config, str(out / layout.CONFIG))
    record = directory.engine

    def serve(problem: Problem, connection: Connection) -> None:
        resume(out, on_round, FlowerHost(connection, record), problem)

    _simulate(config, out, str(record["run"]), serve, tell, workers)


def _simulate(
    config: Config,
    out: Path,
    key: str,
    serve: Callable[[Problem, Connection], None],
    tell: Callable[[str], None],
    workers: int,
) -> None:
    if config.flower.own_data:
        raise UserError("flower.own_data = true: nodes with data of their own are a deployment; give --connection")
    with one_thread():
        problem = prepare(config)
        state = (out / layout.NODES).absolute()
        simulate_nodes(lambda connection: serve(problem, connection), len(problem.clients), key, state, tell, workers)
