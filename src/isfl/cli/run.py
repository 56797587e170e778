"""`isfl run` and `isfl resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isfl.cli.completion import one_of
from isfl.cli.flower import resume_on_flower, run_on_flower
from isfl.cli.many import finish_comparison, finish_reproduction
from isfl.cli.options import ConfigFile, Jobs, Overrides, Track
from isfl.cli.output import resumable
from isfl.errors import UserError
from isfl.layout import fresh_directory

if TYPE_CHECKING:
    from isfl.problem.config import Config

Connection = Annotated[
    str | None,
    typer.Option(
        help="a Flower connection by name, or the directory of `isfl flower up` (default: Flower's simulation)",
        show_default=False,
    ),
]


def run(
    config: ConfigFile,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="run directory (default: runs/NAME-DATE)", show_default=False)
    ] = None,
    jobs: Jobs = None,
    engine: Annotated[
        str,
        typer.Option(
            help="local (worker processes on this machine) or flower", autocompletion=one_of("local", "flower")
        ),
    ] = "local",
    connection: Connection = None,
    track: Track = None,
) -> None:
    """Run one experiment and write its run directory."""
    from isfl.cli.terminal import run_progress, say
    from isfl.engines.local.worker_pool import cores
    from isfl.experiment.run import LocalHost
    from isfl.experiment.run import run as run_experiment
    from isfl.problem.config import load_config
    from isfl.trackers.tracking import Tracking, tracked

    if engine not in ("local", "flower"):
        raise UserError(f"--engine {engine}: choose local or flower")
    if connection is not None and engine != "flower":
        raise UserError("--connection is for --engine flower")
    settings = load_config(config, overrides or [])
    tracking = Tracking(track or [])
    out = out or fresh_directory(config.stem)
    progress = run_progress(_title(settings), settings.training.rounds)
    with resumable(out), progress as show, tracked(tracking, settings, out, show) as on_round:
        match engine:
            case "local":
                run_experiment(settings, out, on_round, LocalHost(jobs or cores()), tell=say)
            case "flower":
                out = run_on_flower(settings, out, connection, on_round, jobs or cores())
    say(f"run directory: {out}")


def resume(
    directory: Annotated[
        Path, typer.Argument(help="directory of a run, a comparison or a reproduction", show_default=False)
    ],
    jobs: Jobs = None,
    connection: Connection = None,
    track: Track = None,
) -> None:
    """Resume an interrupted run, comparison or reproduction; the result is bit-identical."""
    from isfl import layout
    from isfl.cli.terminal import run_progress, say
    from isfl.engines.local.worker_pool import cores
    from isfl.experiment.cells import planned_cells
    from isfl.experiment.directory import RunDirectory
    from isfl.experiment.run import LocalHost
    from isfl.experiment.run import resume as resume_run
    from isfl.problem.config import config_from
    from isfl.trackers.tracking import Tracking, tracked

    tracking = Tracking(track or [])
    if (directory / layout.PLAN).exists():
        plan, cells = planned_cells(directory, wanted=True)
        if plan["command"] == "reproduce":
            if tracking:
                raise UserError("--track is for runs and comparisons, not for isfl reproduce")
            finish_reproduction(cells, directory, jobs)
        else:
            finish_comparison(cells, directory, jobs, plan["title"], tracking)
        return
    run = RunDirectory.open(directory)
    if run.finished:
        run.check_finished()
        say(f"{directory} is finished: nothing to do")
        return
    settings = config_from(run.config, str(directory / layout.CONFIG))
    where = run.engine
    progress = run_progress(_title(settings), settings.training.rounds)
    with resumable(directory), progress as show, tracked(tracking, settings, directory, show) as on_round:
        if connection is not None and where["kind"] != "deployment":
            raise UserError(f"--connection {connection}: {directory} is a run of the engine {where['kind']!r}")
        match where["kind"]:
            case "local":
                resume_run(directory, on_round, LocalHost(jobs or cores()), tell=say)
            case "simulation" | "deployment":
                resume_on_flower(directory, where, connection, on_round, jobs or cores())
            case other:
                raise UserError(f"{directory / layout.ENVIRONMENT}: engine.kind is {other!r}, which isfl does not know")
    say(f"run directory: {directory}")


def _title(config: Config) -> str:
    return f"{config.scheme.name} · seed {config.seed}"
