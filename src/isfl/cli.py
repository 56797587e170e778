"""The command line. Thin: every command imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import click
import typer

from isfl.cli_data import ConfigFile, Overrides
from isfl.cli_data import app as data_app
from isfl.cli_flower import app as flower_app
from isfl.cli_flower import resume_on_flower, run_on_flower
from isfl.cli_many import Jobs, Track, finish_comparison, finish_reproduction, fresh, resumable
from isfl.cli_many import add_to as add_many_run_commands
from isfl.cli_report import add_to as add_report_commands
from isfl.errors import InterruptionError, UserError, plain_warnings

if TYPE_CHECKING:
    from isfl.experiment.config import Config

app = typer.Typer(
    help="Federated learning on label-skewed clients with local importance sampling.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

INTERRUPTED = 130
"""What a shell gives for a program ended by Ctrl-C."""

Connection = Annotated[
    str | None,
    typer.Option(
        help="a Flower connection by name, or the directory of `isfl flower up` (default: Flower's simulation)",
        show_default=False,
    ),
]

app.add_typer(data_app, name="data")
app.add_typer(flower_app, name="flower")


@app.command()
def run(
    config: ConfigFile,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="run directory (default: runs/NAME-DATE)", show_default=False)
    ] = None,
    jobs: Jobs = None,
    engine: Annotated[str, typer.Option(help="local (worker processes here) or flower")] = "local",
    connection: Connection = None,
    track: Track = None,
) -> None:
    """Run one experiment and write its run directory."""
    from isfl.crew import cores
    from isfl.experiment.config import load_config
    from isfl.experiment.run import run as run_experiment
    from isfl.terminal import run_progress, say
    from isfl.trackers import Tracking, tracked

    if engine not in ("local", "flower"):
        raise UserError(f"--engine {engine}: choose local or flower")
    if connection is not None and engine != "flower":
        raise UserError("--connection is for --engine flower")
    settings = load_config(config, overrides or [])
    tracking = Tracking(track or [])
    out = out or fresh(config.stem)
    progress = run_progress(_title(settings), settings.training.rounds)
    with resumable(out), progress as show, tracked(tracking, settings, out, show) as on_round:
        if engine == "local":
            run_experiment(settings, out, on_round, jobs or cores())
        else:
            out = run_on_flower(settings, out, connection, on_round, jobs or cores())
    say(f"run directory: {out}")


add_many_run_commands(app)


@app.command()
def resume(
    directory: Annotated[Path, typer.Argument(help="a run, or the directory of a comparison", show_default=False)],
    jobs: Jobs = None,
    connection: Connection = None,
    track: Track = None,
) -> None:
    """Go on with what was stopped, as if it had never been."""
    from isfl.crew import cores
    from isfl.experiment.cells import planned_cells
    from isfl.experiment.config import config_from
    from isfl.experiment.directory import RunDirectory
    from isfl.experiment.run import resume as resume_run
    from isfl.files import PLAN
    from isfl.terminal import run_progress, say
    from isfl.trackers import Tracking, tracked

    tracking = Tracking(track or [])
    if (directory / PLAN).exists():
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
        say(f"{directory} is finished: nothing to do")
        return
    settings = config_from(run.config, str(directory / "config.json"))
    where = run.engine
    progress = run_progress(_title(settings), settings.training.rounds)
    with resumable(directory), progress as show, tracked(tracking, settings, directory, show) as on_round:
        if connection is not None and where["kind"] != "deployment":
            raise UserError(f"--connection {connection}: {directory} is a run of the engine {where['kind']!r}")
        if where["kind"] == "local":
            resume_run(directory, on_round, jobs or cores())
        else:
            resume_on_flower(directory, where, connection, on_round, jobs or cores())
    say(f"run directory: {directory}")


add_report_commands(app)


def _title(config: Config) -> str:
    return f"{config.scheme.name} · seed {config.seed}"


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False) -> None:
    if show:
        from isfl import __version__

        typer.echo(f"isfl {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: a user's mistake is one line and exit code 2; tracebacks are for our bugs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a letter shows a question mark
    plain_warnings()
    try:
        code = app(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except UserError as error:
        _fail(str(error), 2)
    except InterruptionError as error:
        _fail(str(error), INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except SystemExit as ending:
        code = ending.code
    if code == INTERRUPTED:
        _fail("interrupted", INTERRUPTED)
    sys.exit(code)


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
