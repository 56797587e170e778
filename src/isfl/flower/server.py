"""The server's side of a run on Flower: a run directory around an engine whose clients are nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isfl import layout
from isfl.experiment.config import Config, config_from
from isfl.experiment.directory import RunDirectory
from isfl.experiment.run import (
    OnRound,
    Problem,
    describe,
    digest_of,
    go_on,
    one_thread,
    prepare,
    reopen,
    warn_of_unknown_classes,
)
from isfl.federation import FederationState, start
from isfl.flower.engine import FlowerEngine
from isfl.flower.messages import Connection

PATIENCE = 60.0
"""Seconds to wait for the server app of a SuperLink that was killed: it lives on until it notices."""


def new_run(
    config: Config, problem: Problem, out: Path, connection: Connection, on_round: OnRound, where: Mapping[str, Any]
) -> None:
    """From the introduction of the clients to the last round. `where` is recorded for resuming."""
    warn_of_unknown_classes(problem.public, config)
    with one_thread(), FlowerEngine(problem, config, connection) as engine:
        state = start(config, engine)
        described = {**_described(config, problem, state), "target": state.target.tolist()}
        directory = RunDirectory.create(out, config.model_dump(mode="json"), described, where)
        with directory.locked():
            go_on(directory, config, engine, state, on_round)


def go_on_run(out: Path, connection: Connection, on_round: OnRound, problem: Problem | None = None) -> None:
    """From the last whole checkpoint. Clients that do not come back in time are missed like in any round."""
    directory = RunDirectory.open(out)
    with directory.locked(PATIENCE), one_thread():
        if directory.finished:
            return
        config = config_from(directory.config, str(out / layout.CONFIG))
        problem = problem or prepare(config)
        with FlowerEngine(problem, config, connection) as engine:
            checkpoint = reopen(directory, _described(config, problem, None))
            if checkpoint is None:
                state = start(config, engine)
            else:
                state = checkpoint.state
                engine.reunite(state.sizes.tolist(), state.counts)
            go_on(directory, config, engine, state, on_round)


def _described(config: Config, problem: Problem, state: FederationState | None) -> dict[str, Any]:
    """`split.json`: all of it where the split is the configuration's, else what the clients told."""
    if not config.flower.own_data:
        return describe(problem)
    told = state.counts if state is not None else None
    return {
        "class_names": list(problem.class_names),
        "client_counts": None if told is None else told.astype(int).tolist(),
        "client_sizes": None if state is None else state.sizes.tolist(),
        "public_counts": problem.public.class_counts.tolist(),
        "sha256": digest_of([problem.public, problem.test]),
    }
