"""A client as a Flower node: its configuration, its data, and the state it keeps between rounds."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from isfl.errors import UserError
from isfl.federation.codec import CodecError, from_bytes, to_bytes
from isfl.federation.privacy import gaussian_epsilon
from isfl.federation.values import ClientMemory
from isfl.files import write_whole

ROUNDS_KEPT = 4
"""Client states kept per run: the server may resume from its last checkpoint but one."""
RUNS_KEPT = 5
LEDGER = "updates.json"
LEDGER_DELTA = 1e-5
"""The delta at which `max-update-epsilon` holds: a server that chose it could make any epsilon small."""


@dataclass(frozen=True)
class Node:
    """The node configuration of a client, as its operator writes it."""

    client: int
    """`partition-id`: 0 to K - 1, each once in a federation."""
    state: Path
    """`state-dir`: directory of the client state."""
    data: str | None = None
    """`data`: the training data (`FILE.npz`, a folder of class folders, `module:function`)."""
    private: bool = False
    """`private`: never send class counts, or anything that reveals them, whatever the server requests."""
    max_epsilon: float | None = None
    """`max-epsilon`: the largest epsilon with which a private client sends noised counts."""
    max_update_epsilon: float | None = None
    """`max-update-epsilon`: send updates with noise alone, and none that would cost more than this over all runs."""
    allow_code: frozenset[str] | None = None
    """`allow-code`: the `module:name` of code that the server's configuration may name; None: any."""
    secure: bool = False
    """`secure`: never send an update that is not masked, whatever the server requests."""
    simulated: bool = False
    """Whether the node is simulated; then its noise comes from the run's seed, so that runs are reproducible."""


def node_of(config: Mapping[str, Any]) -> Node:
    """Return the node of a Flower node configuration."""
    client = config.get("partition-id")
    if type(client) is not int or client < 0:
        raise UserError(f"the node configuration needs partition-id, a whole number from 0; found {client!r}")
    state, data = config.get("state-dir"), str(config["data"]) if config.get("data") else None
    return Node(
        client=client,
        state=Path(str(state)) if state else default_state(),
        data=data,
        private=_switch("private", config.get("private", False)),
        secure=_switch("secure", config.get("secure", False)),
        max_epsilon=_epsilon("max-epsilon", config.get("max-epsilon")),
        max_update_epsilon=_epsilon("max-update-epsilon", config.get("max-update-epsilon")),
        allow_code=_code(config.get("allow-code"), data),
    )


def _code(value: object, data: str | None) -> frozenset[str] | None:
    """Parse names between spaces. Without the key, a node that has its own data allows no code but that of `data`."""
    if value is None and data is None:
        return None
    names = str(value or "").split()
    for name in names:
        if not re.fullmatch(r"[\w.]+:[\w.]+", name):
            raise UserError(f"allow-code = {value!r} in the node configuration: write module:name, between spaces")
    return frozenset({*names, *([data] if data and ":" in data else [])})


def _switch(key: str, value: object) -> bool:
    """Parse `true` or `false`; refuse anything else, because a misread word could switch privacy off."""
    if value not in (True, False, "true", "false"):
        raise UserError(f"{key} = {value!r} in the node configuration: write true or false")
    return value in (True, "true")


def _epsilon(key: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UserError(f"{key} = {value!r} in the node configuration: write a number above 0")
    return float(value)


def default_state() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(base) / "isfl"


def memory_folder(node: Node, run: str, make: bool = False) -> Path:
    """Return the folder of a client's states in one run.

    The run's key comes over the network, so it is checked before it becomes a path. A new folder removes the oldest
    ones; each leaves a mark, so that a removed run is not mistaken for a new one.
    """
    if not re.fullmatch(r"[0-9a-f]{32}", run):
        raise UserError("the run's key is not 32 hexadecimal digits")
    folder = _own_folder(node) / run
    if folder.with_suffix(".forgotten").exists():
        raise UserError(f"has forgotten this run: {RUNS_KEPT} others came after it")
    if make and not folder.exists():
        with locked(folder.with_name("runs.lock")):
            _make_with_room(folder)
    return folder


def _make_with_room(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    # Never the new one, whose time is the earliest if the clock was set back.
    others = [other for other in folder.parent.iterdir() if other.is_dir() and other != folder]
    for old in sorted(others, key=lambda other: other.stat().st_mtime)[: -(RUNS_KEPT - 1)]:
        old.with_suffix(".forgotten").touch()
        shutil.rmtree(old, ignore_errors=True)


def _own_folder(node: Node) -> Path:
    """Return the client's folder; only its owner can read it, because probabilities reveal the label mix."""
    folder = node.state / f"client-{node.client}"
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    return folder


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock on this file: the processes that answer a node's messages run side by side."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def exclusive_memory(node: Node, run: str) -> Iterator[None]:
    """Let one message at a time read and replace the client's memory of a run.

    Two that arrived together would both find the same secret of secure aggregation, and be answered with the same keys.
    """
    with locked(memory_folder(node, run, make=True) / "lock"):
        yield


def remember(node: Node, run: str, round: int, memory: ClientMemory) -> None:
    """Store the client's memory after a round; a repeated round replaces it."""
    folder = memory_folder(node, run, make=True)
    write_whole(folder / f"round-{round:06d}.safetensors", to_bytes(memory))
    files = sorted(folder.glob("round-*.safetensors"))
    later = [file for file in files if _round(file) > round]  # the server resumed from an earlier round
    for old in [*later, *files[: len(files) - len(later)][:-ROUNDS_KEPT]]:
        old.unlink(missing_ok=True)


def recall(node: Node, run: str, upto: int) -> ClientMemory:
    """Return the memory after round `upto`, or after the last round before it in which the client took part."""
    files = sorted(memory_folder(node, run).glob("round-*.safetensors"), reverse=True)
    for file in files:
        if _round(file) <= upto:
            try:
                return from_bytes(ClientMemory, file.read_bytes())
            except CodecError as error:
                raise UserError(
                    f"its memory of round {_round(file)} is damaged ({error}); without {file.name} it would begin anew"
                ) from None
    return ClientMemory()


def _round(file: Path) -> int:
    return int(file.stem.removeprefix("round-"))


def told_first(node: Node, counts: np.ndarray, noised: np.ndarray) -> np.ndarray:
    """Return the noised counts that were sent first for these counts, for any epsilon.

    With new noise for every request, a server that asks often enough could average the noise away.
    """
    key = hashlib.sha256(json.dumps(counts.tolist()).encode()).hexdigest()[:32]
    file = _own_folder(node) / f"told-{key}.json"
    with locked(file.with_name("told.lock")):
        if file.exists():
            return np.array(json.loads(file.read_text(encoding="utf-8")), dtype=np.float64)
        write_whole(file, json.dumps(noised.tolist()).encode())
    return noised


def count_noised_update(node: Node, noise: float) -> None:
    """Count one more update with noise of this multiplier `z`, before it is sent; refuse it above the operator's limit.

    Every answer has fresh noise, so a server that asks often enough could average it away. An answer is a Gaussian
    mechanism with `mu = 2 / z`, and several are one with `mu^2` the sum of theirs (`federation/privacy.py`).
    """
    folder = _own_folder(node)
    with locked((folder / LEDGER).with_suffix(".lock")):
        try:
            known = json.loads((folder / LEDGER).read_text(encoding="utf-8")) if (folder / LEDGER).exists() else {}
            sent, squares = int(known.get("sent", 0)), float(known.get("mu_squared", 0.0))
        except (ValueError, TypeError, AttributeError):
            raise UserError(f"its count of updates, {folder / LEDGER}, is damaged") from None
        sent, squares = sent + 1, squares + (2.0 / noise) ** 2
        if (limit := node.max_update_epsilon) is not None:
            epsilon = gaussian_epsilon(1.0 / math.sqrt(squares), LEDGER_DELTA, 1)
            if epsilon > limit:
                raise UserError(
                    f"its operator allows max-update-epsilon = {limit:g} at delta = {LEDGER_DELTA:g}; update {sent} "
                    f"would spend {epsilon:.2f}"
                )
        write_whole(folder / LEDGER, json.dumps({"sent": sent, "mu_squared": squares}).encode())


def simulated_node(client: int, state: Path) -> Node:
    return replace(Node(client, state), simulated=True)
