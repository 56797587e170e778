"""The command line. Thin: every command imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from isfl.errors import UserError, plain_warnings

app = typer.Typer(
    help="Federated learning on label-skewed clients with local importance sampling.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[Path, typer.Argument(help="TOML configuration of the run", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="override a key, for instance --set training.rounds=10"),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="runs at a time (default: one per core)", show_default=False)]


@app.command()
def run(
    config: ConfigFile,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="run directory (default: runs/NAME-DATE)", show_default=False)
    ] = None,
) -> None:
    """Run one experiment and write its run directory."""
    from isfl.experiment.config import load_config
    from isfl.experiment.run import run as run_experiment
    from isfl.terminal import console, run_progress

    settings = load_config(config, overrides or [])
    out = out or _fresh(config.stem)
    with run_progress(f"{settings.scheme.name} · seed {settings.seed}", settings.training.rounds) as on_round:
        run_experiment(settings, out, on_round)
    console.print(f"run directory: {out}", markup=False)


@app.command()
def compare(
    config: ConfigFile,
    schemes: Annotated[str, typer.Option(help="comma-separated scheme names")] = "fedavg,uniform-is,isfl",
    seeds: Annotated[str, typer.Option(help="comma-separated seeds")] = "0,1,2",
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="directory (default: runs/NAME-DATE)", show_default=False)] = None,
    jobs: Jobs = None,
) -> None:
    """Run several schemes over several seeds: a table with mean and spread, and a picture."""
    from isfl.experiment.config import load_config

    settings = load_config(config, overrides or [])
    names = [name.strip() for name in schemes.split(",") if name.strip()]
    try:
        numbers = [int(seed) for seed in seeds.split(",") if seed.strip()]
    except ValueError:
        raise UserError(f"--seeds {seeds}: write whole numbers, for instance --seeds 0,1,2") from None
    _compare(settings, names, numbers, out or _fresh(config.stem), jobs, config.stem)


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="directory (default: runs/demo-DATE)", show_default=False)] = None,
    jobs: Jobs = None,
) -> None:
    """FedAvg, Uniform-IS, ISFL and calibrated on real images with severe label skew: about a minute."""
    from importlib import resources

    from isfl.experiment.config import parse_config

    text = resources.files("isfl.experiment").joinpath("presets/demo.toml").read_text(encoding="utf-8")
    settings = parse_config(text, "demo.toml")
    _compare(settings, ["fedavg", "uniform-is", "isfl", "calibrated"], [0, 1, 2], out or _fresh("demo"), jobs, "demo")


def _compare(config: object, schemes: list[str], seeds: list[int], out: Path, jobs: int | None, title: str) -> None:
    from isfl.experiment.compare import HEADINGS, caption, cells_of, run_cells, summarise, table, write_summary
    from isfl.experiment.config import Config
    from isfl.report.comparison import draw_comparison
    from isfl.terminal import cells_progress, console, print_table

    assert isinstance(config, Config)
    cells = cells_of(config, schemes, seeds, out)
    with cells_progress(cells) as watch:
        run_cells(cells, jobs, watch)
    rows = summarise(cells)
    write_summary(rows, out)
    picture = draw_comparison(
        {scheme: [cell.out for cell in cells if cell.scheme == scheme] for scheme in schemes}, out / "comparison.png"
    )
    print_table(HEADINGS, table(rows), f"{title}, {config.training.rounds} rounds", caption(rows))
    console.print(f"picture: {picture}\nrun directories: {out}/SCHEME/seed-N", markup=False)


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
    plain_warnings()
    try:
        app(args=list(arguments) if arguments is not None else None)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
