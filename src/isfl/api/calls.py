"""Runs and comparisons as calls. They write what the commands write, print nothing and leave the process as it was."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isfl import layout
from isfl.api.callbacks import Callback, after_each_round, as_runs_grow
from isfl.api.comparison import Comparison
from isfl.api.results import Run
from isfl.engines.local.worker_pool import cores
from isfl.errors import UserError
from isfl.experiment import run as experiment
from isfl.experiment.cells import Cell, begin_cells, planned_cells, run_cells
from isfl.experiment.compare import comparison_cells
from isfl.experiment.directory import LOCAL, RunDirectory
from isfl.layout import fresh_directory
from isfl.models import AnyModel
from isfl.problem import config as configuration
from isfl.problem.config import Config
from isfl.problem.given import Given, given_objects, named_python
from isfl.problem.problem import loaded
from isfl.report.comparison import write_comparison

ConfigLike = Config | Mapping[str, Any] | str | os.PathLike[str]
"""A configuration: read already, as a nested dictionary, or as the path of a TOML file."""


def load_config(config: ConfigLike, overrides: Sequence[str] = ()) -> Config:
    """Return a checked configuration with every default filled in.

    Parameters
    ----------
    config
        The path of a TOML file, a nested dictionary with the same keys, or a `Config`.
    overrides
        Changes such as `"training.rounds=10"`, as `--set` takes them; the value is TOML or a word.

    Returns
    -------
    Config
        The configuration; what was passed in stays as it is.

    Raises
    ------
    UserError
        If the file cannot be read, or a key or value is wrong; the message names it.

    Examples
    --------
    >>> import isfl
    >>> config = isfl.load_config({"scheme": "fedavg"}, ["training.rounds=3", "seed=1"])
    >>> config.scheme.name, config.training.rounds, config.seed
    ('fedavg', 3, 1)
    >>> isfl.load_config({"training": {"round": 3}})
    Traceback (most recent call last):
    isfl.errors.UserError: config: training.round: unknown key; did you mean 'rounds'?
    """
    match config:
        case Config() if not overrides:
            return config
        case Config():
            raw: dict[str, Any] = config.model_dump(mode="json")
            if "split" not in config.model_fields_set:
                del raw["split"]  # the data may come with its own
        case Mapping():
            raw = copy.deepcopy(dict(config))
        case _:
            return configuration.load_config(Path(config), overrides)
    for override in overrides:
        configuration.apply(raw, override)
    return configuration.config_from(raw, "config")


def run(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    data: Any = None,
    model: AnyModel | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run one experiment on this machine and return its run directory, opened.

    Parameters
    ----------
    config
        The path of a TOML file, a nested dictionary with the same keys, or a `Config`.
    overrides
        Changes such as `"training.rounds=10"`, as `--set` takes them.
    data
        The data, in place of `data.name`: `(train, test)`, each a map-style `torch.utils.data.Dataset`, a data set of
        Hugging Face or `(inputs, labels)`; a list or dictionary of such sets as `train` is one per client.
    model
        The model, in place of `model.name`: a `torch.nn.Module`, which is copied, or a class or function that builds
        one from the shape of an input and the number of classes.
    out
        The run directory, which must be empty or absent (default: `runs/NAME-DATE`).
    workers
        How many processes share the work (default: one per core); the result does not depend on it.
    callbacks
        Functions to call after each round with its record, a dictionary as `Run.records` has it. What one raises ends
        the run, which `isfl.resume` can resume.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    UserError
        If the configuration is wrong or cannot be run, or the directory is in use; the message says what to change.

    Examples
    --------
    >>> import isfl
    >>> tiny = {"scheme": "isfl", "split": {"clients": 3, "shard_size": 20}}
    >>> run = isfl.run(tiny, ["training.rounds=2"], callbacks=[lambda record: print(record["round"])])
    1
    2
    >>> run.finished
    True
    >>> type(run.model()).__name__
    'Sequential'
    """
    given = given_objects(data, model)
    settings = named_python(load_config(config, overrides), given)
    directory = _directory(out, config, settings)
    experiment.run(settings, directory, after_each_round(callbacks), _host(workers), given=given)
    return Run(directory)


def resume(
    directory: str | os.PathLike[str],
    *,
    data: Any = None,
    model: AnyModel | None = None,
    workers: int | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run | Comparison:
    """Resume an interrupted run or comparison; the result is bit-identical to that of an uninterrupted one.

    Parameters
    ----------
    directory
        The directory of the run or comparison; finished runs stay as they are.
    data
        What `isfl.run` or `isfl.compare` was given, once more.
    model
        What `isfl.run` or `isfl.compare` was given, once more.
    workers
        How many processes share the work (default: one per core).
    callbacks
        Functions to call after each round that is left, as `isfl.run` or `isfl.compare` calls them.

    Returns
    -------
    Run or Comparison
        Finished, by what the directory holds.

    Raises
    ------
    UserError
        If the directory is not that of a run or comparison on this machine, or its data or model has changed.

    Examples
    --------
    >>> import isfl
    >>> def stop(record):
    ...     raise KeyboardInterrupt
    >>> tiny = {"split": {"clients": 3, "shard_size": 20}, "training": {"rounds": 2}}
    >>> try:
    ...     isfl.run(tiny, out="runs/c", callbacks=[stop])
    ... except KeyboardInterrupt:
    ...     print(len(isfl.Run("runs/c").records))
    1
    >>> len(isfl.resume("runs/c").records)
    2
    """
    path = Path(directory)
    host, given = _host(workers), given_objects(data, model)
    if (path / layout.PLAN).exists():
        plan, cells = planned_cells(path, wanted=True)
        if plan["command"] != "compare":
            raise UserError(f"{path}: holds the runs of isfl {plan['command']}; resume it with isfl resume {path}")
        return _finished(cells, path, host.workers, callbacks, given)
    kind = RunDirectory.open(path).engine["kind"]
    if kind != LOCAL["kind"]:
        raise UserError(f"{path}: is a run of the engine {kind!r}; resume it with the command isfl resume {path}")
    experiment.resume(path, after_each_round(callbacks), host, given=given)
    return Run(path)


def compare(
    config: ConfigLike,
    schemes: str | Sequence[str] = ("fedavg", "uniform-is", "isfl"),
    seeds: Sequence[int] = (0, 1, 2),
    overrides: Sequence[str] = (),
    *,
    variants: Mapping[str, Sequence[str]] | None = None,
    data: Any = None,
    model: AnyModel | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    callbacks: Sequence[Callback] = (),
) -> Comparison:
    """Run several schemes over several seeds; write the table, the picture and the report of all.

    Parameters
    ----------
    config
        The path of a TOML file, a nested dictionary with the same keys, or a `Config`.
    schemes
        Names of schemes, or `"all"`; the configuration's own scheme keeps its settings.
    seeds
        One run of each scheme per seed.
    overrides
        Changes such as `"training.rounds=10"`, as `--set` takes them.
    variants
        Further rows by name, each with the changes that make it: `{"floor": ["scheme.sampling.target_floor=0.5"]}`.
    data
        As in `isfl.run`.
    model
        As in `isfl.run`; a module has the same initial weights for all seeds.
    out
        The directory, which must be empty or absent (default: `runs/NAME-DATE`).
    workers
        How many runs go on at a time (default: one per core); the results do not depend on it.
    callbacks
        Functions to call after each round of each run with its record, a dictionary as `Comparison.records` has it.

    Returns
    -------
    Comparison
        The finished comparison.

    Raises
    ------
    UserError
        If the configuration is wrong or cannot be run, or the directory is in use; the message says what to change.

    Examples
    --------
    >>> import isfl
    >>> tiny = {"split": {"clients": 2, "shard_size": 20}, "training": {"rounds": 1}}
    >>> comparison = isfl.compare(tiny, schemes=["fedavg", "calibrated"], seeds=[0])
    >>> [row["scheme"] for row in comparison.summary]
    ['fedavg', 'calibrated']
    """
    given = given_objects(data, model)
    settings, given = loaded(named_python(load_config(config, overrides), given), given)
    directory = _directory(out, config, settings)
    processes = _host(workers).workers
    names = (schemes,) if isinstance(schemes, str) else schemes
    cells = comparison_cells(settings, names, seeds, directory, list((variants or {}).items()))
    begin_cells(cells, directory, {"command": "compare", "title": _name(config, settings)}, given=given)
    return _finished(cells, directory, processes, callbacks, given)


def _finished(
    cells: Sequence[Cell], directory: Path, processes: int, callbacks: Sequence[Callback], given: Given
) -> Comparison:
    """Run what is left of a comparison and write its table, picture and report."""
    run_cells(cells, processes, as_runs_grow(callbacks, cells), given)
    write_comparison(cells, directory)
    return Comparison(directory)


def _directory(out: str | os.PathLike[str] | None, config: ConfigLike, settings: Config) -> Path:
    return fresh_directory(_name(config, settings)) if out is None else Path(out)


def _name(config: ConfigLike, settings: Config) -> str:
    """Return what a directory is called after: the configuration file, or else the scheme."""
    return Path(config).stem if isinstance(config, str | os.PathLike) else settings.scheme.name


def _host(workers: int | None) -> experiment.LocalHost:
    if workers is not None and workers < 1:
        raise UserError(f"workers is {workers}: it must be at least 1, or None for one per core")
    return experiment.LocalHost(workers or cores())
