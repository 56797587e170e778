"""`isfl data`: what data sets there are, fetching them, and how a configuration splits them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path, typer.Argument(help="TOML configuration of the run", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="override a key, for instance --set training.rounds=10"),
]

app = typer.Typer(help="Data sets: what there is, fetching, and how a configuration splits them.")


@app.command("list")
def data_list() -> None:
    """The data sets by name, and where each comes from."""
    from isfl.data import SOURCES
    from isfl.files import cache_directory
    from isfl.terminal import say

    for name, loader in SOURCES.items():
        cached = " [in the cache]" if (cache_directory() / name).is_dir() else ""
        say(f"{name:<20}{(loader.__doc__ or '').strip()}{cached}")
    say(f"{'module:function':<20}Your own: returns train inputs, train labels, test inputs, test labels.")


@app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, ...")],
    path: Annotated[Path | None, typer.Option(help="take it from this directory in an official format")] = None,
    hub: Annotated[bool, typer.Option(help="allow a download from the Hugging Face hub")] = False,
) -> None:
    """Fetch a data set into the cache and check it."""
    from isfl.data import DataSettings, keep, load
    from isfl.terminal import say

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
    out: Annotated[Path, typer.Option(help="the picture")] = Path("split.png"),
) -> None:
    """How a configuration splits its data: a skew card and a picture."""
    import numpy as np

    from isfl.diagnose.heatmap import draw_split
    from isfl.diagnose.tables import SKEW_HEADINGS, skew_rows
    from isfl.experiment.config import load_config
    from isfl.experiment.run import prepare
    from isfl.terminal import print_table, say

    settings = load_config(config, overrides or [])
    problem = prepare(settings)
    counts = np.stack([data.class_counts for data in problem.clients])
    print_table(SKEW_HEADINGS, skew_rows(counts), f"{settings.data.name}, {settings.split.kind} split", "")
    say(f"picture: {draw_split(counts, problem.class_names, out)}")
