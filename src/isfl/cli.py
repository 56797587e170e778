"""The command line. Thin: every command imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import click
import typer

from isfl.cli_data import ConfigFile, Overrides
from isfl.cli_data import app as data_app
from isfl.cli_flower import app as flower_app
from isfl.cli_flower import resume_on_flower, run_on_flower
from isfl.cli_report import add_to as add_report_commands
from isfl.errors import InterruptionError, UserError, plain_warnings

if TYPE_CHECKING:
    from isfl.experiment.cells import Cell
    from isfl.experiment.config import Config
    from isfl.trackers import Tracking

app = typer.Typer(
    help="Federated learning on label-skewed clients with local importance sampling.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

INTERRUPTED = 130
"""What a shell gives for a program ended by Ctrl-C."""

Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="processes: runs at a time, or workers of a single run (default: one per core)"),
]

Connection = Annotated[
    str | None,
    typer.Option(
        help="a Flower connection by name, or the directory of `isfl flower up` (default: Flower's simulation)",
        show_default=False,
    ),
]

Track = Annotated[
    list[str] | None,
    typer.Option(help="tell a tracker of every round: tensorboard, or module:function; repeatable"),
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
    out = out or _fresh(config.stem)
    progress = run_progress(_title(settings), settings.training.rounds)
    with _resumable(out), progress as show, tracked(tracking, settings, out, show) as on_round:
        if engine == "local":
            run_experiment(settings, out, on_round, jobs or cores())
        else:
            out = run_on_flower(settings, out, connection, on_round, jobs or cores())
    say(f"run directory: {out}")


@app.command()
def compare(
    config: ConfigFile,
    schemes: Annotated[str, typer.Option(help="comma-separated scheme names")] = "fedavg,uniform-is,isfl",
    variants: Annotated[
        list[str] | None,
        typer.Option("--variant", help="'NAME: key=value; key=value': one more row, with these changes; repeatable"),
    ] = None,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds")] = "0,1,2",
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="directory (default: runs/NAME-DATE)", show_default=False)] = None,
    jobs: Jobs = None,
    track: Track = None,
) -> None:
    """Run several schemes over several seeds: a table with mean and spread, and a picture."""
    from isfl.experiment.compare import comparison_cells
    from isfl.experiment.config import load_config
    from isfl.trackers import Tracking

    settings = load_config(config, overrides or [])
    tracking = Tracking(track or [])
    names = [name.strip() for name in schemes.split(",") if name.strip()]
    out = out or _fresh(config.stem)
    _compare(comparison_cells(settings, names, _numbers(seeds), out, variants or []), out, jobs, config.stem, tracking)


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="directory (default: runs/demo-DATE)", show_default=False)] = None,
    jobs: Jobs = None,
) -> None:
    """FedAvg, Uniform-IS, ISFL and calibrated on real images with severe label skew: about a minute."""
    from isfl.experiment.compare import comparison_cells
    from isfl.experiment.config import demo_config

    out = out or _fresh("demo")
    schemes = ["fedavg", "uniform-is", "isfl", "calibrated"]
    _compare(comparison_cells(demo_config(), schemes, [0, 1, 2], out), out, jobs, "demo")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="table2, table3, fig-convergence, fig-rho, fig-q, fig-cost or fig-sr")],
    scale: Annotated[str, typer.Option(help="smoke, quick or paper")] = "quick",
    only: Annotated[str | None, typer.Option(help="cells to run, as patterns: 'nr-0.98/*,*/isfl*'")] = None,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds")] = "0",
    out: Annotated[Path | None, typer.Option(help="directory; one that is there goes on", show_default=False)] = None,
    jobs: Jobs = None,
) -> None:
    """Run a table or figure of the paper and set the published numbers beside ours."""
    from isfl.experiment.paper import scale_named
    from isfl.experiment.reproduce import reproduction_cells

    out = out or Path("runs") / f"{name}-{scale}"
    cells = reproduction_cells(name, scale_named(scale), _numbers(seeds), out, only)
    _finish_reproduction(cells, out, jobs, name, scale)


def _finish_reproduction(cells: list[Cell], out: Path, jobs: int | None, name: str, scale: str) -> None:
    from isfl.experiment.cells import planned_cells, run_cells
    from isfl.report.page import write_report
    from isfl.report.reproduction import SCALES, by_group, headings, rows_of, write_reproduction
    from isfl.terminal import cells_progress, print_table, say

    with _resumable(out), cells_progress(cells) as watch:
        run_cells(cells, jobs, watch)
    results = write_reproduction(name, scale, planned_cells(out)[1], out)
    for group, rows in by_group(results).items():
        print_table(headings(rows), rows_of(rows), f"{name}: {group}", "")
    say(SCALES[scale])
    write_report([out], out / "report.html")
    say(f"written: {out}/{name}.md, .json, .png, and report.html")


def _numbers(seeds: str) -> list[int]:
    try:
        return [int(seed) for seed in seeds.split(",") if seed.strip()]
    except ValueError:
        raise UserError(f"--seeds {seeds}: write whole numbers, for instance --seeds 0,1,2") from None


def _compare(cells: list[Cell], out: Path, jobs: int | None, title: str, tracking: Tracking | None = None) -> None:
    from isfl.experiment.cells import begin_cells

    begin_cells(cells, out, {"command": "compare", "title": title})
    _finish_comparison(cells, out, jobs, title, tracking)


def _finish_comparison(cells: list[Cell], out: Path, jobs: int | None, title: str, tracking: Tracking | None) -> None:
    from isfl.experiment.cells import run_cells
    from isfl.experiment.compare import summarise
    from isfl.report.comparison import draw_comparison
    from isfl.report.page import write_report
    from isfl.report.table import HEADINGS, caption, table, write_summary
    from isfl.terminal import cells_progress, print_table, say
    from isfl.trackers import Tracking, tracked_cells

    tracking = tracking or Tracking([])
    with _resumable(out), cells_progress(cells) as show, tracked_cells(tracking, cells, show) as watch:
        run_cells(cells, jobs, watch)
    rows = summarise(cells)
    write_summary(rows, out)
    print_table(HEADINGS, table(rows), f"{title}, {cells[0].config.training.rounds} rounds", caption(rows))
    runs = {row.scheme: [cell.out for cell in cells if cell.label == row.scheme] for row in rows}
    say(f"picture: {draw_comparison(runs, out / 'comparison.png')}")
    write_report([out], out / "report.html")
    say(f"report: {out / 'report.html'}")
    say(f"run directories: {out}/SCHEME/seed-N")


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
            _finish_reproduction(cells, directory, jobs, plan["title"], plan["scale"])
        else:
            _finish_comparison(cells, directory, jobs, plan["title"], tracking)
        return
    run = RunDirectory.open(directory)
    if run.finished:
        say(f"{directory} is finished: nothing to do")
        return
    settings = config_from(run.config, str(directory / "config.json"))
    where = run.engine
    progress = run_progress(_title(settings), settings.training.rounds)
    with _resumable(directory), progress as show, tracked(tracking, settings, directory, show) as on_round:
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


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Ctrl-C says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        hint = f"; go on with: isfl resume {out}" if out.exists() else ""
        raise InterruptionError(f"interrupted{hint}") from None


def _fresh(name: str) -> Path:
    """A directory of this moment; a second run within the same second gets a number."""
    base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path


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
