"""Commands that make many runs: `isfl compare`, `isfl demo`, `isfl reproduce`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isfl.cli.completion import complete_experiments, complete_schemes, one_of
from isfl.cli.options import ConfigFile, Jobs, Overrides, Track
from isfl.cli.output import resumable
from isfl.errors import UserError
from isfl.layout import RUNS, fresh_directory

if TYPE_CHECKING:
    from isfl.experiment.cells import Cell
    from isfl.problem.given import Given
    from isfl.trackers.tracking import Tracking


def compare(
    config: ConfigFile,
    schemes: Annotated[
        str, typer.Option(help="comma-separated scheme names, or all", autocompletion=complete_schemes)
    ] = "fedavg,uniform-is,isfl",
    variants: Annotated[
        list[str] | None,
        typer.Option("--variant", help="'NAME: key=value; key=value': one more row with these overrides; repeatable"),
    ] = None,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds")] = "0,1,2",
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="directory (default: runs/NAME-DATE)", show_default=False)] = None,
    jobs: Jobs = None,
    track: Track = None,
) -> None:
    """Run several schemes over several seeds; write a table with mean and spread, and a picture."""
    from isfl.experiment.compare import comparison_cells, variant_from
    from isfl.problem.config import load_config
    from isfl.problem.problem import loaded
    from isfl.trackers.tracking import Tracking

    settings, given = loaded(load_config(config, overrides or []))
    tracking = Tracking(track or [])
    names = [name.strip() for name in schemes.split(",") if name.strip()]
    out = out or fresh_directory(config.stem)
    rows = [variant_from(text) for text in variants or []]
    cells = comparison_cells(settings, names, _numbers(seeds), out, rows)
    _compare(cells, out, jobs, config.stem, given, tracking)


def demo(
    out: Annotated[Path | None, typer.Option(help="directory (default: runs/demo-DATE)", show_default=False)] = None,
    jobs: Jobs = None,
) -> None:
    """Compare FedAvg, Uniform-IS, ISFL and adaptive on real images with severe label skew.

    It takes about a minute and a half on two cores.
    """
    from isfl.experiment.compare import comparison_cells
    from isfl.experiment.demo import demo_config
    from isfl.problem.problem import loaded

    out = out or fresh_directory("demo")
    schemes = ["fedavg", "uniform-is", "isfl", "adaptive"]
    settings, given = loaded(demo_config())
    _compare(comparison_cells(settings, schemes, [0, 1, 2], out), out, jobs, "demo", given)


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table2, table3, centralized, "
            "fig-convergence, fig-cross, fig-rho, fig-q, fig-cost, fig-sr or fig-personal; "
            "ours: policy-screen, -choose, -confirm, -explain or -skew (docs/policy.md), attacks (docs/robustness.md)",
            autocompletion=complete_experiments,
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(help="smoke, quick, half or paper", autocompletion=one_of("smoke", "quick", "half", "paper")),
    ] = "quick",
    interpretation: Annotated[
        str,
        typer.Option(
            "--as",
            help="which reading of the paper: text, authors or published (docs/reproducing.md)",
            autocompletion=one_of("text", "authors", "published"),
        ),
    ] = "published",
    clients: Annotated[
        int | None, typer.Option(min=1, help="number of clients, unless the experiment varies it")
    ] = None,
    only: Annotated[str | None, typer.Option(help="cells to run, as patterns: 'nr-0.98/*,*/isfl*'")] = None,
    overrides: Overrides = None,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds")] = "0",
    out: Annotated[Path | None, typer.Option(help="directory; an existing one is resumed", show_default=False)] = None,
    jobs: Jobs = None,
) -> None:
    """Run a table or figure by name; those of the paper are compared with the published numbers."""
    from isfl.experiment.paper_setting import setting_named
    from isfl.experiment.reproduce import reproduction_cells

    changes = [re.sub(r"[^\w.=-]+", "-", change) for change in overrides or []]
    name_of_setting = [name, scale, interpretation, *([f"K={clients}"] if clients else []), *changes]
    out = out or RUNS / "-".join(name_of_setting)
    setting = setting_named(scale, interpretation, clients)
    cells = reproduction_cells(name, setting, _numbers(seeds), out, only, overrides or [])
    finish_reproduction(cells, out, jobs)


def finish_reproduction(cells: list[Cell], out: Path, jobs: int | None) -> None:
    from isfl import layout
    from isfl.cli.terminal import cells_progress, console, print_table, say
    from isfl.experiment.cells import planned_cells, run_cells
    from isfl.report.page import write_report
    from isfl.report.reproduction import by_group, caption, setting_of, terminal_tables, write_reproduction

    with resumable(out), cells_progress(cells, jobs) as watch:
        run_cells(cells, jobs, watch)
    plan, every = planned_cells(out)
    name = plan["title"]
    results = write_reproduction(plan, every, out)
    for group, members in by_group(results).items():
        for headings, rows in terminal_tables(members):
            print_table(headings, rows, f"{name}: {group}", "")
    console.print(caption(results))
    for part in setting_of(plan):
        say(part)
    write_report([out], out / layout.REPORT)
    say(f"written: {out}/{name}.md, .json, .png, and {layout.REPORT}")


def _numbers(seeds: str) -> list[int]:
    try:
        return [int(seed) for seed in seeds.split(",") if seed.strip()]
    except ValueError:
        raise UserError(f"--seeds {seeds}: write whole numbers, for instance --seeds 0,1,2") from None


def _compare(
    cells: list[Cell], out: Path, jobs: int | None, title: str, given: Given, tracking: Tracking | None = None
) -> None:
    from isfl.experiment.cells import begin_cells

    begin_cells(cells, out, {"command": "compare", "title": title}, given=given)
    finish_comparison(cells, out, jobs, title, tracking, given)


def finish_comparison(
    cells: list[Cell],
    out: Path,
    jobs: int | None,
    title: str,
    tracking: Tracking | None,
    given: Given | None = None,
) -> None:
    from isfl import layout
    from isfl.cli.terminal import cells_progress, print_table, say
    from isfl.experiment.cells import run_cells
    from isfl.problem.given import NOTHING
    from isfl.report.comparison import write_comparison
    from isfl.report.table import CLOCK, accuracy_caption, accuracy_table, clock_table, cost_caption, cost_table
    from isfl.trackers.tracking import Tracking, tracked_cells

    tracking = tracking or Tracking([])
    with resumable(out), cells_progress(cells, jobs) as show, tracked_cells(tracking, cells, show) as watch:
        run_cells(cells, jobs, watch, given or NOTHING)
    rows = write_comparison(cells, out)
    print_table(*accuracy_table(rows), f"{title}, {cells[0].config.training.rounds} rounds", accuracy_caption(rows))
    print_table(*cost_table(rows), "", cost_caption(rows))
    if (clock := clock_table(rows)) is not None:
        print_table(*clock, "", CLOCK)
    say(f"picture: {out / layout.COMPARISON}")
    say(f"report: {out / layout.REPORT}")
    say(f"run directories: {out}/SCHEME/seed-N")
