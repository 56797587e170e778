"""What malformed inputs are given to."""

from __future__ import annotations

import contextlib
import io
import json
import os
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
from campaigns.mutations import WORDS, changed_bytes, changed_text, changed_tree
from campaigns.reference import CONFIG
from isfl import layout
from isfl.api import Run
from isfl.cli import main
from isfl.data.held import load_held
from isfl.errors import UserError
from isfl.experiment.cells import planned_cells
from isfl.experiment.demo import demo_config
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

COUNTS = "client,cat,dog,bird\na,10,0,5\nb,3,4,0\nc,0,0,20\n"


def configuration(chance: random.Random, scratch: Path) -> None:
    """A TOML file with changed words and lines, or a configuration with changed values."""
    if chance.random() < 0.5:
        override = [f"{chance.choice(KEYS)}={chance.choice(WORDS)}"] if chance.random() < 0.3 else []
        parse_config(changed_text(chance.choice((CONFIG, TINY)), chance), "fuzz.toml", override)
    else:
        config_from(changed_tree(demo_config().model_dump(mode="json"), chance), "fuzz")


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


# ------------------------------------------------------------ commands


def counts_file(chance: random.Random, scratch: Path) -> None:
    """A file of class counts for `isfl diagnose`."""
    file = scratch / "counts.csv"
    content = changed_text(COUNTS, chance).encode(errors="replace")
    file.write_bytes(content if chance.random() < 0.6 else changed_bytes(content, chance))
    options = ["--lipschitz", changed_text("1.5,2,0.7", chance)] if chance.random() < 0.3 else []
    options += ["--target", changed_text("0.5,0.3,0.2", chance)] if chance.random() < 0.2 else []
    _command(["diagnose", str(file), *options])


COMMANDS = (
    "run",
    "compare",
    "resume",
    "report",
    "export",
    "diagnose",
    "init",
    "data list",
    "doctor",
    "flower down",
    "x",
)
OPTIONS = (
    *(
        "--set",
        "--out",
        "--jobs",
        "--schemes",
        "--seeds",
        "--variant",
        "--engine",
        "--connection",
        "--track",
        "--target",
    ),
    *("--floor", "--lipschitz", "--dir", "--help", "--version", "--only", "--format", "--", "-h", "--nonsense"),
)


def command_line(chance: random.Random, scratch: Path) -> None:
    """A command with options in disorder; its files are wrong or missing, so that nothing is trained."""
    (scratch / "c.toml").write_text(changed_text(TINY, chance) + "\n[nonsense]\n", encoding="utf-8", errors="replace")
    (scratch / "counts.csv").write_text(COUNTS, encoding="utf-8")
    words = chance.choice(COMMANDS).split()
    for _ in range(chance.randint(0, 4)):
        words.append(chance.choice((*OPTIONS, "c.toml", "counts.csv", "missing", ".", "training.rounds=1")))
        if chance.random() < 0.5:
            words.append(chance.choice(WORDS))
    if "flower" in words[2:] or "\0" in "".join(words):  # no simulation; a shell cannot pass a zero byte
        return
    before = Path.cwd()
    os.chdir(scratch)
    try:
        _command(words)
    finally:
        os.chdir(before)


def _command(arguments: list[str]) -> None:
    """Run `isfl` in this process; raise unless it succeeds, or fails with one line."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main(arguments)
        except SystemExit as ending:
            code = ending.code or 0
    lines = [line for line in errors.getvalue().splitlines() if not line.startswith("warning: ")]
    if code == 0:
        return
    helped = code == 2 and not lines  # a command without arguments shows its help
    assert helped or (code in (1, 2) and len(lines) == 1 and lines[0].startswith("error: ")), (code, arguments, lines)
    raise UserError(lines[0] if lines else "help")


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
        _command(["report", str(run), "--out", str(scratch / "report.html")])
    else:
        find_runs([run])


TARGETS: Mapping[str, Target] = {
    "configuration": Target("configurations", 3000, configuration),
    "command": Target("command lines", 1200, command_line),
    "counts": Target("files of class counts", 1000, counts_file),
    "npz": Target("npz files", 1200, npz_file),
    "picture": Target("pictures", 800, picture, _pictures),
    "run": Target("run directories and plans", 1000, run_directory, _runs),
    "to-client": Target("Flower messages to a client", 800, messages.to_client, messages.recorded),
    "to-server": Target("Flower replies to the server", 900, messages.to_server, messages.recorded),
    "round": Target("rounds with changed, doubled and replayed replies", 100, messages.whole_round, messages.recorded),
}
