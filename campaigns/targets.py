"""What malformed inputs are given to."""

from __future__ import annotations

import atexit
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tests.commands import TINY
from tests.directories import scheme_runs_in

from campaigns import messages
from campaigns.commands import command, command_line, counts_file, prepare
from campaigns.mutations import WORDS, changed_bytes, changed_text, changed_tree
from campaigns.reference import CONFIG
from isfl import layout
from isfl.api import Run
from isfl.data.held import load_held
from isfl.experiment.cells import planned_cells
from isfl.experiment.demo import demo_config
from isfl.experiment.published import published_in, published_text
from isfl.problem.config import config_from, parse_config
from isfl.report.reading import find_runs


@dataclass(frozen=True)
class Target:
    """`give` makes one input and hands it to the code; it raises `UserError` or `CodecError` for a clear refusal."""

    title: str
    inputs: int
    give: Callable[[random.Random, Path], None]
    prepare: Callable[[], object] = lambda: None
    """Called once, before processes are forked."""


# ------------------------------------------------------------ configurations


def _with(tables: str, start: str = 'scheme = "isfl"') -> str:
    return TINY.replace('scheme = "isfl"', start) + tables


BASES = (
    CONFIG,
    TINY,
    _with(
        "[secure]\nthreshold = 0.6\nneighbours = 2\nrange = 4.0\nbits = 24\n",
        'target = {kind = "uniform"}\n'
        'scheme = {name = "isfl", sampling = {where = "client", lipschitz_at = "client"}}\n',
    ),
    _with(
        'batchnorm = "group"\n[privacy]\nclip = 1.0\nnoise = 1.0\ndelta = 1e-5\nepsilon = 50\nat = "client"\n',
        'target = {kind = "uniform"}\nscheme = {name = "calibrated", aggregation = {weights = "client"}}\n',
    ),
    _with(
        '[attack]\nkind = "sign-flip"\nshare = 0.2\nstrength = 4\n',
        'scheme = {name = "calibrated", aggregation = {rule = "public-loss", hostile = 0.2}}\n',
    ),
    _with(
        "participation = 0.5\n[stragglers]\nover_selection = 0.3\ndeadline = 60\n"
        "[stragglers.simulated]\nmedian = 10\nspread = 0.5\nclient_spread = 1.0\nnever = 0.05\n"
    ),
)
"""Valid configurations, with every table among them."""


@cache
def trees() -> list[Any]:
    """Return the same as nested values, as a run directory and a message hold them."""
    configs = [demo_config(), *(parse_config(text, "base.toml", []) for text in BASES)]
    return [config.model_dump(mode="json") for config in configs]


def configuration(chance: random.Random, scratch: Path) -> None:
    """A TOML file with changed words and lines, or a configuration with changed values."""
    if chance.random() < 0.5:
        override = [f"{chance.choice(KEYS)}={chance.choice(WORDS)}"] if chance.random() < 0.3 else []
        parse_config(changed_text(chance.choice(BASES), chance), "fuzz.toml", override)
    else:
        config_from(changed_tree(chance.choice(trees()), chance), "fuzz")


KEYS = (
    "seed",
    "scheme",
    "training.rounds",
    "training.lr",
    "split.clients",
    "data.path",
    "model",
    "target.shares",
    "a.b",
    "",
)


# ------------------------------------------------------------ data


def npz_file(chance: random.Random, scratch: Path) -> None:
    """An archive of arrays that was damaged, or that holds other arrays than it should."""
    file = scratch / "data.npz"
    arrays: dict[str, Any] = {
        "images": np.zeros((6, 4, 4), chance.choice((np.uint8, np.float32, np.float64, np.int64, np.complex64, bool))),
        "labels": np.array([0, 1, 2, 0, 1, 2]),
    }
    if chance.random() < 0.5:
        name = chance.choice(("images", "labels", "other"))
        shape = chance.choice(((), (0,), (6,), (6, 4), (6, 4, 4), (2, 4, 4), (6, 0, 4), (1,) * 20))
        arrays[name] = np.full(shape, chance.choice((0, -1, 1e30, np.nan, np.inf, 2, 3)))
    np.savez(file, **arrays)
    if chance.random() < 0.6:
        file.write_bytes(changed_bytes(file.read_bytes(), chance))
    load_held(str(file), ["a", "b", "c"], (4, 4))


@cache
def _pictures() -> tuple[bytes, ...]:
    found = []
    for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP"):
        stream = io.BytesIO()
        Image.new("RGB", (4, 4), (9, 99, 200)).save(stream, kind)
        found.append(stream.getvalue())
    return tuple(found)


def picture(chance: random.Random, scratch: Path) -> None:
    """A folder of pictures, of which one is damaged."""
    for number, name in enumerate(("a", "b")):
        (scratch / name).mkdir()
        (scratch / name / "0.png").write_bytes(_pictures()[0])
        content = chance.choice(_pictures())
        suffix = chance.choice((".png", ".jpg", ".bmp", ".gif", ".webp"))
        (scratch / name / f"1{suffix}").write_bytes(changed_bytes(content, chance) if number else content)
    load_held(str(scratch), ["a", "b"], (3, 4, 4))


# ------------------------------------------------------------ run directories


@cache
def _runs() -> Path:
    """Return small finished runs; they stay until the process ends."""
    place = Path(tempfile.mkdtemp(prefix="isfl-fuzz-runs-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)  # not in forked processes: they end without it
    scheme_runs_in(place)
    return place


def run_directory(chance: random.Random, scratch: Path) -> None:
    """A run directory with a changed file, for reports, for Python, for plans."""
    run = Path(shutil.copytree(_runs() / "half", scratch / "run"))
    name = chance.choice((*layout.DESCRIPTION, *layout.GROWING, layout.MODEL, layout.PLAN, layout.CHECKSUMS))
    file = run / name
    if name == layout.PLAN:
        cell = {"group": "", "label": "isfl", "seed": 0, "out": "a", "wanted": True, "config": {}}
        file.write_text(json.dumps({"command": "compare", "title": "t", "cells": [cell]}), encoding="utf-8")
    way = chance.random()
    if name.endswith(".json") and way < 0.5:
        file.write_text(
            json.dumps(changed_tree(json.loads(file.read_text(encoding="utf-8")), chance)), encoding="utf-8"
        )
    elif name.endswith(".jsonl") and way < 0.6:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        file.write_text("".join(json.dumps(line) + "\n" for line in changed_tree(lines, chance)), encoding="utf-8")
    else:
        file.write_bytes(changed_bytes(file.read_bytes(), chance))
    if name == layout.PLAN:
        planned_cells(run, wanted=True)
    elif chance.random() < 0.5:
        (run / layout.CHECKSUMS).unlink(missing_ok=True)  # as in runs of earlier versions
        found = Run(run)
        _ = repr(found), found.records, found.probabilities, found.finished
        if name == layout.MODEL or chance.random() < 0.1:
            found.model()
    elif chance.random() < 0.2:
        command(["report", str(run), "--out", str(scratch / "report.html")], scratch)
    else:
        find_runs([run])


def published_numbers(chance: random.Random, scratch: Path) -> None:
    """A file of published numbers with changed bytes or values."""
    text = published_text()
    if chance.random() < 0.5:
        text = changed_bytes(text.encode(), chance).decode(errors="replace")
    else:
        text = json.dumps(changed_tree(json.loads(text), chance))
    published_in(text, "published.json")


TARGETS: Mapping[str, Target] = {
    "configuration": Target("configurations", 3000, configuration, trees),
    "command": Target("command lines", 1200, command_line, prepare),
    "counts": Target("files of class counts", 1000, counts_file, prepare),
    "npz": Target("npz files", 1200, npz_file),
    "picture": Target("pictures", 800, picture, _pictures),
    "run": Target("run directories and plans", 1000, run_directory, _runs),
    "published": Target("files of published numbers", 500, published_numbers),
    "to-client": Target("Flower messages to a client", 800, messages.to_client, messages.recorded),
    "to-server": Target("Flower replies to the server", 900, messages.to_server, messages.recorded),
    "round": Target("rounds with changed, doubled and replayed replies", 100, messages.whole_round, messages.recorded),
}
