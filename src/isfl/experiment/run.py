"""One run from configuration to run directory, on any engine."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from isfl import layout
from isfl.data import Dataset
from isfl.engines import LocalEngine
from isfl.engines.threads import one_thread
from isfl.errors import UserError
from isfl.experiment.directory import LOCAL, RunDirectory, refuse_used
from isfl.experiment.environment import environment
from isfl.experiment.metrics import metrics_of, probabilities_of
from isfl.experiment.repeats import counting_repeat
from isfl.federation import Engine, FederationState, run_round, start
from isfl.federation.preparation import has_compilable_convolutions, why_slow_convolutions
from isfl.federation.settings import MOST_LISTED
from isfl.federation.values import ClientProfile
from isfl.problem.config import Config, config_from
from isfl.problem.given import NOTHING, Given
from isfl.problem.problem import Problem, prepare

DIGEST_ROWS = 1024
"""Samples that are read at a time to compute a checksum; it does not depend on this number."""

OnRound = Callable[[dict[str, Any]], None]
"""Called with each line of metrics as it is written."""
Tell = Callable[[str], None]
"""Called with a line for the user, at the start."""


class Host(Protocol):
    """Where a run takes place."""

    @property
    def record(self) -> Mapping[str, Any]:
        """What `run.json` says about this place, so that the run can be resumed there."""
        ...

    @property
    def lock_seconds(self) -> float:
        """How long to wait for a process that is about to release the run directory."""
        ...

    def engine(self, problem: Problem, config: Config, directory: Path) -> AbstractContextManager[Engine]:
        """Open the engine of a run in `directory`."""
        ...


@dataclass(frozen=True)
class LocalHost:
    """This machine; the number of worker processes changes the time a run takes, never its result."""

    workers: int = 1
    lock_seconds: float = 0.0

    @property
    def record(self) -> Mapping[str, Any]:
        return LOCAL

    def engine(self, problem: Problem, config: Config, directory: Path) -> LocalEngine:
        if problem.population is None:
            raise UserError("flower.own_data = true: the clients are elsewhere; run with --engine flower")
        return LocalEngine(
            problem.model,
            problem.population,
            problem.public,
            problem.test,
            config,
            workers=self.workers,
            directory=directory / layout.CLIENTS,
        )


THIS_MACHINE = LocalHost()


def run(
    config: Config,
    out: Path,
    on_round: OnRound = lambda line: None,
    host: Host = THIS_MACHINE,
    problem: Problem | None = None,
    given: Given = NOTHING,
    tell: Tell = lambda text: None,
) -> None:
    """Start a new run in `out`, which must be empty or absent; `problem` saves preparing it again."""
    refuse_used(out)
    with one_thread():
        problem = problem or prepare(config, given)
        config = problem.config
        _warn_of_unknown_classes(problem.public, config)
        _name_convolutions(problem, config, tell)
        with host.engine(problem, config, out) as engine:
            state = start(config, engine)
            described = {**describe(problem, state), "target": _target(config, state)}
            directory = RunDirectory.create(out, config.model_dump(mode="json"), described, host.record)
            with directory.locked():
                _run_rounds(directory, config, engine, state, on_round)


def resume(
    out: Path,
    on_round: OnRound = lambda line: None,
    host: Host = THIS_MACHINE,
    problem: Problem | None = None,
    given: Given = NOTHING,
    tell: Tell = lambda text: None,
) -> None:
    """Resume an interrupted run from its last whole checkpoint; the result is bit-identical."""
    directory = RunDirectory.open(out)
    with directory.locked(host.lock_seconds), one_thread():
        if directory.finished:
            directory.check_finished()
            return
        config = config_from(directory.config, str(out / layout.CONFIG))
        problem = problem or prepare(config, given)
        _refuse_other_data(directory, problem)
        _refuse_other_layers(directory, problem.model)
        _warn_of_other_versions(directory)
        _name_convolutions(problem, config, tell)
        with host.engine(problem, config, out) as engine:
            checkpoint = directory.restore()
            if checkpoint is None:
                _refuse_other_weights(directory, problem.model)
                state = start(config, engine)
            else:
                state = checkpoint.state
                engine.restore(state, checkpoint.client_states)
            if config.privacy is not None and host.record.get("kind") == "deployment":
                state = counting_repeat(out, config, state)
            _run_rounds(directory, config, engine, state, on_round)


def check_runnable(config: Config, given: Given = NOTHING) -> None:
    """Do everything up to the first round and discard it: a request that cannot be met fails here."""
    with one_thread(), LocalHost().engine(prepare(config, given), config, Path()) as engine:
        start(config, engine)


def _run_rounds(
    directory: RunDirectory, config: Config, engine: Engine, state: FederationState, on_round: OnRound
) -> None:
    """Run the rounds that are left; each is on disk before the next begins."""
    while state.round < config.training.rounds:
        state, report = run_round(state, config, engine)
        line = metrics_of(report)
        directory.record(state, engine.client_states, line, probabilities_of(report))
        on_round(line)
    directory.finish(state.model)


def _refuse_other_data(directory: RunDirectory, problem: Problem) -> None:
    if directory.split.get("sha256") != _digest_of_data(problem):
        raise UserError(
            f"{directory.path}: the data is not what it was when the run began; put it back, or start a new run"
        )


def _refuse_other_layers(directory: RunDirectory, model: nn.Module) -> None:
    if directory.split.get("layers_sha256", digest := _digest_of_layers(model)) != digest:
        raise UserError(
            f"{directory.path}: the model has other layers than when the run began; put it back, or start a new run"
        )


def _refuse_other_weights(directory: RunDirectory, model: nn.Module) -> None:
    """Refuse other initial weights; once there is a checkpoint, they come from it."""
    if directory.split.get("weights_sha256", digest := _digest_of_weights(model)) != digest:
        raise UserError(
            f"{directory.path}: stopped before its first round, and the model has other initial weights now; put them "
            "back, or start a new run"
        )


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


def _warn_of_unknown_classes(public: Dataset, config: Config) -> None:
    """Warn of classes the public set lacks: their gradients are unknown, and sampling goes on without them."""
    lacking = np.flatnonzero(public.class_counts == 0).tolist()
    moments = config.scheme.sampling.uses_moments
    if lacking and (moments or config.importance_sampling is not None or config.diagnostics.lipschitz):
        what = "gradients" if moments else "Lipschitz values"
        warnings.warn(
            f"the public set has no sample of class {', '.join(map(str, lacking))}: {what} there count as "
            "average (raise data.public)",
            stacklevel=3,
        )


def _name_convolutions(problem: Problem, config: Config, tell: Tell) -> None:
    """Say once which 3x3 convolutions a run uses: they are part of its bits and of the time it takes."""
    if (reason := why_slow_convolutions(problem.model, config)) is not None:
        warnings.warn(f"compiled convolutions are not used: {reason}", stacklevel=3)
    elif has_compilable_convolutions(problem.model):
        tell("3x3 convolutions: compiled (training.convolutions = 'torch' uses torch's)")


def describe(problem: Problem, state: FederationState) -> dict[str, Any]:
    """Return the content of `split.json`; of clients with data of their own, what they reported.

    Nothing is listed by client where there are more than `MOST_LISTED`.
    """
    if problem.population is not None:
        listed = range(len(problem.population) if len(problem.population) <= MOST_LISTED else 0)
        counts = [problem.population.class_counts(k).tolist() for k in listed]
        clients: dict[str, Any] = {"client_counts": counts or None}
    elif len(state.clients) == state.num_clients:
        known = None if state.counts is None else state.counts.astype(int).tolist()
        clients = {"client_counts": known, "client_sizes": state.sizes.tolist()}
    else:  # they introduce themselves when they are first chosen
        clients = {"client_counts": None, "client_sizes": None}
    return {
        "class_names": list(problem.class_names),
        **clients,
        "public_counts": problem.public.class_counts.tolist(),
        "sha256": _digest_of_data(problem),
        "input_shape": list(problem.test.inputs.shape[1:]),
        "input_dtype": str(problem.test.batch(slice(0, 1))[0].dtype).removeprefix("torch."),
        "layers_sha256": _digest_of_layers(problem.model),
        "weights_sha256": _digest_of_weights(problem.model),
    }


def _target(config: Config, state: FederationState) -> list[list[float]] | None:
    """Return the (K, C) target shares; None where there are too many, or they follow from clients not yet seen."""
    if state.num_clients > MOST_LISTED:
        return None
    shares = state.target
    if not config.target.from_all_clients:
        if config.target.needs_exact_counts:
            return None
        unseen = [ClientProfile(k, 0, None) for k in range(state.num_clients)]
        shares = config.target.client_shares(unseen, shares.shape[1])
    rows: list[list[float]] = shares.tolist()
    return rows


def _digest_of_data(problem: Problem) -> str:
    """Return the SHA-256 of every sample, so that a run is never resumed on other data."""
    held = () if problem.population is None else problem.population.parts
    parts: Sequence[Dataset] = [*held, problem.public, problem.test]
    digest = hashlib.sha256()
    for data in parts:
        for first in range(0, len(data), DIGEST_ROWS):
            digest.update(data.stored(slice(first, first + DIGEST_ROWS)).contiguous().numpy().data)
        digest.update(data.labels.contiguous().numpy().data)
    return digest.hexdigest()


def _digest_of_layers(model: nn.Module) -> str:
    """Return the SHA-256 of the layers as torch prints them, and of the names and shapes of all weights."""
    shapes = [(name, tuple(value.shape), str(value.dtype)) for name, value in model.state_dict().items()]
    layers = re.sub(r" at 0x[0-9a-f]+", "", str(model))  # functions are printed with an address
    return hashlib.sha256(f"{layers} {shapes}".encode()).hexdigest()


def _digest_of_weights(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
