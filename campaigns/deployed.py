"""SIGKILL of the processes of a Flower deployment on loopback: server app, client app, SuperLink, SuperNode."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from campaigns.children import Ending
from campaigns.verdicts import Judged, Verdict
from isfl import layout
from isfl.engines import LocalEngine
from isfl.engines.flower.processes import alive, environment
from isfl.experiment.run import LocalHost, run
from isfl.federation.values import ClientUpdate, TrainTask
from isfl.problem.config import Config, parse_config
from isfl.problem.problem import Problem

CLIENTS, ROUNDS = 2, 3
CONFIG = f"""
scheme = "isfl"
data = {{public = 40}}
split = {{kind = "mixed", clients = {CLIENTS}, shard_size = 40, nr = 0.8}}
model = {{name = "small-cnn", width = 0.25}}
training = {{rounds = {ROUNDS}, local_epochs = 1, batch_size = 32, evaluate_every = {ROUNDS}, evaluate_clients = 0}}
flower = {{reply_seconds = 60, wait_seconds = 120}}
"""
VICTIMS = ("server app", "client app", "SuperLink", "SuperNode")
LONGEST_DELAY = 20.0
"""Seconds between kills, at most; a run takes about a minute. Flower needs another to notice that an app is gone."""
COMMAND_SECONDS = 1200.0
"""A command that takes longer hangs; on a busy machine, a process of Flower needs a minute to start."""
KILLS = 4
"""In one try at most."""
ENDING = ("server app", "SuperLink")
"""Without these, the command ends and asks to be resumed."""


def killed(number: int, chance: random.Random, scratch: Path) -> Judged:
    """Kill a process of a deployed run, restart what is missing, resume if the command asks for it; up to four
    times, with each kind of process in turn.
    """
    federation = scratch / "federation"
    try:
        return _killed(number, chance, scratch, federation)
    finally:
        subprocess.run(_isfl("flower", "down", "--dir", str(federation)), env=environment(None), timeout=120)


def _killed(number: int, chance: random.Random, scratch: Path, federation: Path) -> Judged:
    config, out = scratch / "deployed.toml", scratch / "run"
    config.write_text(CONFIG, encoding="utf-8")
    _up(federation)
    kills: list[str] = []
    ending = Ending(0, "")
    for _ in range(KILLS + 2):
        arguments = ["run", str(config), "--engine", "flower", "--connection", str(federation), "--out", str(out)]
        if out.exists():
            arguments = ["resume", str(out)]
        with (scratch / "errors.txt").open("w", encoding="utf-8") as errors:
            process = _started(arguments, errors)
        striking = True
        while striking and len(kills) < KILLS:
            victim = VICTIMS[(number + len(kills)) % len(VICTIMS)]
            striking = _struck(federation, victim, process, chance)
            kills += [victim] if striking else []
            striking = striking and victim not in ENDING
        ending = _ended(process, scratch / "errors.txt")
        what = f"killed: {', '.join(kills) or 'nothing'}"
        if ending.code == 0:
            return _judged(scratch.parent, out, what, len(kills))
        if ending.error_line is None:
            return Judged(Verdict.UNCLEAR, f"{what}: {ending}", len(kills))
        _up(federation)
    return Judged(Verdict.LOST, f"killed: {', '.join(kills)}; it does not finish: {ending}", len(kills))


# ------------------------------------------------------------ processes


def _isfl(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "isfl.cli", *arguments]


def _up(federation: Path) -> None:
    """Start the deployment, or the processes of it that are missing, as an operator would."""
    command = _isfl("flower", "up", "--clients", str(CLIENTS), "--dir", str(federation))
    done = subprocess.run(command, env=environment(None), capture_output=True, text=True, timeout=COMMAND_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def _started(arguments: Sequence[str], errors: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(_isfl(*arguments), env=environment(None), stdout=subprocess.DEVNULL, stderr=errors)


def _ended(process: subprocess.Popen[bytes], errors: Path) -> Ending:
    try:
        code = process.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    return Ending(code, errors.read_text(encoding="utf-8"))


def _struck(federation: Path, victim: str, process: subprocess.Popen[bytes], chance: random.Random) -> bool:
    """Kill a process of this kind at a random time; return whether there was one before the command ended."""
    time.sleep(chance.uniform(2.0, LONGEST_DELAY))
    moment = chance.uniform(0.0, 6.0)  # within the life of an app, which ends with its message
    while process.poll() is None:
        if found := _pids(federation, victim):
            time.sleep(moment)
            target = chance.choice(found)
            with suppress(ProcessLookupError):
                if victim == "SuperLink" and chance.random() < 0.5:
                    os.killpg(target, signal.SIGKILL)  # with its server app
                else:
                    os.kill(target, signal.SIGKILL)
                if victim == "SuperNode":
                    time.sleep(1.0)
                    _up(federation)
                return True
        time.sleep(0.1)
    return False


def _pids(federation: Path, victim: str) -> list[int]:
    known = {process.name: process.pid for process in alive(federation)}
    match victim:
        case "SuperLink":
            return [known["superlink"]] if "superlink" in known else []
        case "SuperNode":
            return [pid for name, pid in known.items() if name != "superlink"]
        case "server app":
            return _apps(known.get("superlink"), "flwr-serverapp")
        case "client app":
            return [app for name, pid in known.items() if name != "superlink" for app in _apps(pid, "flwr-clientapp")]
    raise AssertionError(victim)


def _apps(pid: int | None, program: str) -> list[int]:
    """Return the descendants of a process that are this program."""
    found, queue = [], [] if pid is None else [pid]
    while queue:
        parent = queue.pop()
        with suppress(OSError):
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
            queue += map(int, children)
            if program.encode() in Path(f"/proc/{parent}/cmdline").read_bytes():
                found.append(parent)
    return found


# ------------------------------------------------------------ the verdict


_ONE_REPLAY = threading.Lock()
"""Training sets the number of threads of the process."""


def _judged(place: Path, out: Path, what: str, kills: int) -> Judged:
    """Compare the run with a local one in which exactly the clients that its metrics name were left out."""
    lines = [json.loads(line) for line in (out / layout.METRICS).read_text(encoding="utf-8").splitlines()]
    absent = frozenset((line["round"], int(client)) for line in lines for client in line["refused"])
    with _ONE_REPLAY:
        same = _bits(out) == _replayed(place, absent)
    if not same or len(lines) != ROUNDS:
        return Judged(Verdict.DIFFERENT, f"{what}; left out: {sorted(absent)}", kills)
    return Judged(Verdict.NAMED if absent else Verdict.SAME, f"{what}; left out: {sorted(absent)}", kills)


def _bits(run: Path) -> tuple[bytes, bytes]:
    return (run / layout.MODEL).read_bytes(), (run / layout.PROBABILITIES).read_bytes()


@cache
def _replayed(place: Path, absent: frozenset[tuple[int, int]]) -> tuple[bytes, bytes]:
    out = place / ("replayed-" + "-".join(f"{number}.{client}" for number, client in sorted(absent)))
    run(parse_config(CONFIG, "deployed.toml", []), out, host=_Without(absent=absent))
    return _bits(out)


@dataclass(frozen=True)
class _Without(LocalHost):
    """This machine, without these clients in these rounds."""

    absent: frozenset[tuple[int, int]] = frozenset()

    def engine(self, problem: Problem, config: Config, directory: Path) -> LocalEngine:
        engine = super().engine(problem, config, directory)
        engine.train = partial(_train, engine.train, self.absent)  # type: ignore[method-assign]
        return engine


def _train(train: Any, absent: frozenset[tuple[int, int]], tasks: Sequence[TrainTask]) -> list[ClientUpdate]:
    return [update for update in train(tasks) if (tasks[0].round, update.client) not in absent]
