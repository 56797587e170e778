"""`isfl data`: list and fetch data sets, show how a configuration splits them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isfl.cli.completion import complete_data
from isfl.cli.options import ConfigFile, Overrides

app = typer.Typer(help="List and fetch data sets, show how a configuration splits them.")


@app.command("list")
def data_list() -> None:
    """List the data sets by name, with their origin."""
    from isfl.cli.terminal import say
    from isfl.data import SOURCES
    from isfl.files import cache_directory

    for name, source in SOURCES.items():
        cached = " [in the cache]" if (cache_directory() / name).is_dir() else ""
        say(f"{name:<20}{(source.load.__doc__ or '').strip()}{cached}")
    say(f"{'module:function':<20}Your own: returns four arrays, or two data sets (train may be one per client).")


@app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="a name of `isfl data list`", autocompletion=complete_data)],
    path: Annotated[Path | None, typer.Option(help="read the official files from this directory")] = None,
    hub: Annotated[bool, typer.Option(help="allow a download from the Hugging Face hub")] = False,
) -> None:
    """Fetch a data set into the cache and check it."""
    from isfl.cli.terminal import say
    from isfl.data import DataSettings, keep, load

    settings = DataSettings(name=name, path=None if path is None else str(path), hub=hub)
    source = load(settings)
    if path is not None:
        keep(name, source)
    shape = tuple(source.train.inputs.shape[1:])
    say(
        f"{name}: {len(source.train)} + {len(source.test)} samples of shape {shape}, {source.train.num_classes} classes"
    )


@app.command("show")
def data_show(
    config: ConfigFile,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="the picture to write")] = Path("split.png"),
) -> None:
    """Show how a configuration splits its data: a skew card and a picture."""
    import numpy as np

    from isfl.cli.terminal import print_table, say
    from isfl.diagnose.heatmap import draw_split
    from isfl.diagnose.tables import SKEW_HEADINGS, skew_rows
    from isfl.problem.config import load_config
    from isfl.problem.problem import prepare

    settings = load_config(config, overrides or [])
    problem = prepare(settings)
    counts = np.stack([data.class_counts for data in problem.clients])
    print_table(SKEW_HEADINGS, skew_rows(counts), f"{settings.data.name}, {problem.config.split.kind} split", "")
    say(f"picture: {draw_split(counts, problem.class_names, out)}")
