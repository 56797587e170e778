"""One run from configuration to run directory."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn

from isfl import layout
from isfl.data import Dataset, load, partition
from isfl.data.dataset import Population
from isfl.data.public_set import public_set
from isfl.data.sources import Source
from isfl.data.transforms import check_transforms
from isfl.engines import LocalEngine
from isfl.errors import UserError
from isfl.experiment.checkpoints import Checkpoint
from isfl.experiment.config import Config, config_from
from isfl.experiment.directory import RunDirectory, environment, refuse_used
from isfl.experiment.metrics import metrics_of, probabilities_of
from isfl.federation import Engine, FederationState, run_round, start
from isfl.federation.client_state import StoredState
from isfl.federation.initial import layer_resets
from isfl.models import build_model, check_output

OnRound = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Problem:
    """Everything a configuration asks for, in memory."""

    model: nn.Module
    clients: Population
    public: Dataset
    test: Dataset
    class_names: tuple[str, ...]


def prepare(config: Config) -> Problem:
    """Load, split and build."""
    source = load(config.data)
    check_transforms(config.training.augment, source.train.inputs[:2])
    labels = source.train.labels.numpy()
    if config.flower.own_data:  # the clients have theirs: what is here is the server's
        public = source.train.subset(public_set(labels, config.data.public, config.seed, config.data.public_from))
        nobody = Population(source.train.rows(0, 0), np.array([0]))
        return Problem(_model(config, source), nobody, public, source.test, source.class_names)
    parts = partition(config.split, labels, config.data.public, config.seed, config.data.public_from)
    bounds = np.cumsum([0, *(len(indices) for indices in parts.clients)])
    clients = Population(source.train.subset(np.concatenate(parts.clients)), bounds)
    clients = config.split.transformed(clients, config.seed)
    if config.scheme.pooled:  # the centralised reference: one client that holds D_G
        clients = Population(clients.data, bounds[[0, -1]])
    public = source.train.subset(parts.public)
    return Problem(_model(config, source), clients, public, source.test, source.class_names)


def _model(config: Config, source: Source) -> nn.Module:
    model = build_model(config.model, tuple(source.train.inputs.shape[1:]), source.train.num_classes, config.seed)
    check_output(model, source.test.batch(slice(0, 2))[0], source.train.num_classes, config.model.name)
    if config.training.initial_models == "independent":
        layer_resets(model)  # refuses what cannot be drawn anew, before the first round
    return model


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, and give the caller's number back afterwards.

    Sums in another order are other bits: the number of threads is part of a result.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def begin(
    config: Config, workers: int = 1, directory: Path | None = None
) -> tuple[Problem, LocalEngine, FederationState]:
    """Everything up to the first round: any request that cannot be met fails here. Call it with `one_thread`."""
    if config.flower.own_data:
        raise UserError("flower.own_data = true: the clients are elsewhere; run with --engine flower")
    problem = prepare(config)
    engine = LocalEngine(
        problem.model, problem.clients, problem.public, problem.test, config, workers=workers, directory=directory
    )
    return problem, engine, start(config, engine)


def run(config: Config, out: Path, on_round: OnRound = lambda line: None, workers: int = 1) -> None:
    """A new run; `on_round` sees each line of metrics as it is written.

    `workers` processes share the work of a round; their number changes nothing but the time it takes.
    """
    refuse_used(out)
    with one_thread():
        problem, engine, state = begin(config, workers, out / layout.CLIENTS)
        warn_of_unknown_classes(problem.public, config)
        described = {**describe(problem), "target": state.target.tolist()}
        directory = RunDirectory.create(out, config.model_dump(mode="json"), described)
        with directory.locked(), engine:
            go_on(directory, config, engine, state, on_round, engine.client_states)


def resume(out: Path, on_round: OnRound = lambda line: None, workers: int = 1) -> None:
    """Resume an interrupted run from its last whole checkpoint; the result is bit-identical."""
    directory = RunDirectory.open(out)
    with directory.locked(), one_thread():
        if directory.finished:
            return
        config = config_from(directory.config, str(out / layout.CONFIG))
        problem, engine, state = begin(config, workers, out / layout.CLIENTS)
        checkpoint = reopen(directory, describe(problem))
        if checkpoint is not None:
            state = checkpoint.state
            engine.client_states.update(checkpoint.client_states)
        with engine:
            go_on(directory, config, engine, state, on_round, engine.client_states)


def reopen(directory: RunDirectory, description: Mapping[str, Any]) -> Checkpoint | None:
    """The last whole checkpoint of a run that goes on with data of this description; None where it begins again."""
    if directory.split["sha256"] != description["sha256"]:
        raise UserError(
            f"{directory.path}: the data is not what it was when the run began; put it back, or start a new run"
        )
    _warn_of_other_versions(directory)
    return directory.restore()


def go_on(
    directory: RunDirectory,
    config: Config,
    engine: Engine,
    state: FederationState,
    on_round: OnRound,
    client_states: Mapping[int, StoredState] = MappingProxyType({}),
) -> None:
    """Round after round, each on disk before the next begins.

    `client_states` is what clients of this machine remember, which goes into the checkpoints.
    """
    while state.round < config.training.rounds:
        state, report = run_round(state, config, engine)
        line = metrics_of(report)
        directory.record(state, client_states, line, probabilities_of(report))
        on_round(line)
    directory.finish(state.model)


def _warn_of_other_versions(directory: RunDirectory) -> None:
    written = directory.environment
    now = environment()
    changed = [
        f"{name} {written.get(part, {}).get(name)} -> {now[part][name]}"
        for part in ("versions", "machine")
        for name in now[part]
        if written.get(part, {}).get(name) != now[part][name]
    ]
    if changed:
        warnings.warn(f"the run was started elsewhere ({'; '.join(changed)}): its bits may differ", stacklevel=3)


def warn_of_unknown_classes(public: Dataset, config: Config) -> None:
    """ISFL goes on without the Lipschitz values of classes the public set lacks, with a warning."""
    lacking = np.flatnonzero(public.class_counts == 0).tolist()
    if lacking and (config.importance_sampling is not None or config.diagnostics.lipschitz):
        warnings.warn(
            f"the public set has no sample of class {', '.join(map(str, lacking))}: Lipschitz values there count as "
            "average (raise data.public)",
            stacklevel=3,
        )


def describe(problem: Problem) -> dict[str, Any]:
    """The content of `split.json`."""
    return {
        "class_names": list(problem.class_names),
        "client_counts": [data.class_counts.tolist() for data in problem.clients],
        "public_counts": problem.public.class_counts.tolist(),
        "sha256": digest_of([*problem.clients, problem.public, problem.test]),
    }


def digest_of(parts: Sequence[Dataset]) -> str:
    """Of every sample, so that a run is never resumed on other data."""
    digest = hashlib.sha256()
    for data in parts:
        for tensor in (data.inputs, data.labels):
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
