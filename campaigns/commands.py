"""Command lines in disorder, with every command; where one would download, train, serve or start processes, it ends."""

from __future__ import annotations

import contextlib
import io
import os
import random
from pathlib import Path
from unittest import mock

from tests.commands import TINY

from campaigns.mutations import WORDS, changed_bytes, changed_text
from isfl.cli import main
from isfl.errors import UserError

COUNTS = "client,cat,dog,bird\na,10,0,5\nb,3,4,0\nc,0,0,20\n"
CONNECTIONS = '[superlink]\ndefault = "there"\n[superlink.there]\naddress = "127.0.0.1:9093"\ninsecure = true\n'
NAMES = (
    *("run", "compare", "demo", "reproduce", "reproduce table2", "reproduce fig-rho", "resume", "report", "watch"),
    *("figures", "export", "diagnose", "init", "data list", "data show", "data get", "data get cifar10", "doctor", "x"),
    *("flower up", "flower down", "flower superlink", "flower node", "flower sign", "flower account", "flower login"),
)
OPTIONS = (
    *("--set", "--out", "--jobs", "--schemes", "--seeds", "--variant", "--engine", "--connection", "--track"),
    *("--target", "--floor", "--lipschitz", "--dir", "--help", "--version", "--only", "--format", "--", "-h"),
    *("--scale", "--as", "--clients", "--port", "--host", "--secure", "--data", "--allow-code", "--remove"),
    *("--superlink", "--node-config", "--nonsense"),
)
FILES = ("c.toml", "counts.csv", "missing", ".", "training.rounds=1", "there", "partition-id=0")
ENDS = (
    "isfl.data.sources.cifar.recall_or_store",
    "isfl.experiment.cells.run_cells",
    "isfl.report.live.served",
    "isfl.engines.flower.deployment.start",
    "isfl.engines.flower.superlink.uvicorn.run",
    "isfl.engines.flower.supernode._serve_runtime",
)
"""Functions that download, train, serve or start processes: a command that reaches one was accepted.

An ending must not depend on the data sets that a machine has; to prepare one can take longer than an input may.
"""


def prepare() -> None:
    """Import what the commands import, so that no input is charged for it."""
    for name in ENDS:
        with mock.patch(name):
            pass


class ReachedError(BaseException):
    """A command would begin its work; not an `Exception`, which the command would report."""


def command_line(chance: random.Random, scratch: Path) -> None:
    """A command with options in disorder; its files are wrong or missing."""
    (scratch / "c.toml").write_text(changed_text(TINY, chance) + "\n[nonsense]\n", encoding="utf-8", errors="replace")
    (scratch / "counts.csv").write_text(COUNTS, encoding="utf-8")
    connections = changed_text(CONNECTIONS, chance) if chance.random() < 0.5 else CONNECTIONS
    (scratch / "config.toml").write_text(connections, encoding="utf-8", errors="replace")
    words = chance.choice(NAMES).split()
    for _ in range(chance.randint(0, 5)):
        words.append(chance.choice((*OPTIONS, *FILES)))
        if chance.random() < 0.5:
            words.append(chance.choice((*WORDS, *FILES)))
    if "flower" in words[2:] or "\0" in "".join(words):  # no simulation; a shell cannot pass a zero byte
        return
    before = Path.cwd()
    os.chdir(scratch)
    try:
        command(words, scratch)
    finally:
        os.chdir(before)


def counts_file(chance: random.Random, scratch: Path) -> None:
    """A file of class counts for `isfl diagnose`."""
    file = scratch / "counts.csv"
    content = changed_text(COUNTS, chance).encode(errors="replace")
    file.write_bytes(content if chance.random() < 0.6 else changed_bytes(content, chance))
    options = ["--lipschitz", changed_text("1.5,2,0.7", chance)] if chance.random() < 0.3 else []
    options += ["--target", changed_text("0.5,0.3,0.2", chance)] if chance.random() < 0.2 else []
    command(["diagnose", str(file), *options], scratch)


def command(arguments: list[str], home: Path) -> None:
    """Run `isfl` in this process; raise unless it succeeds, or fails with one line."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"FLWR_HOME": str(home)}))
        for name in ENDS:
            stack.enter_context(mock.patch(name, side_effect=ReachedError))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(errors))
        try:
            main(arguments)
        except ReachedError:
            return
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    lines = [line for line in errors.getvalue().splitlines() if not line.startswith("warning: ")]
    if code == 0:
        return
    helped = code == 2 and not lines  # a command without arguments shows its help
    assert helped or (code in (1, 2) and len(lines) == 1 and lines[0].startswith("error: ")), (code, arguments, lines)
    raise UserError(lines[0] if lines else "help")
