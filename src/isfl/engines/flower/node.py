"""A client on a machine of its own: who it is, which data it holds, and what it keeps between rounds."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from isfl.errors import UserError
from isfl.federation.codec import from_bytes, to_bytes
from isfl.federation.values import ClientMemory
from isfl.files import write_whole

ROUNDS_KEPT = 4
"""Of a run; the server may go back to its last checkpoint but one."""
RUNS_KEPT = 5


@dataclass(frozen=True)
class Node:
    """What an operator says of a client in the node configuration."""

    client: int
    """`partition-id`: 0 to K - 1, each once in a federation."""
    state: Path
    """`state-dir`: where the client keeps what it remembers."""
    data: str | None = None
    """`data`: what it trains on (`FILE.npz`, a folder of class folders, `module:function`)."""
    private: bool = False
    """`private`: never tell class counts or anything that gives them away, whatever the server asks for."""
    max_epsilon: float | None = None
    """`max-epsilon`: a private client may tell noised counts up to this epsilon."""
    simulated: bool = False
    """Only a simulation: noise may then be repeated, so that runs can be."""


def node_of(config: Mapping[str, Any]) -> Node:
    """From a Flower node configuration."""
    client = config.get("partition-id")
    if type(client) is not int or client < 0:
        raise UserError(f"the node configuration needs partition-id, a number from 0 on; found {client!r}")
    state = config.get("state-dir")
    return Node(
        client=client,
        state=Path(str(state)) if state else default_state(),
        data=str(config["data"]) if config.get("data") else None,
        private=_switch(config.get("private", False)),
        max_epsilon=_epsilon(config.get("max-epsilon")),
    )


def _switch(value: object) -> bool:
    """Whatever is not clearly off or on is an error: a word that is misread must not open what should be closed."""
    if value not in (True, False, "true", "false"):
        raise UserError(f"private = {value!r} in the node configuration: write true or false")
    return value in (True, "true")


def _epsilon(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UserError(f"max-epsilon = {value!r} in the node configuration: write a number above 0")
    return float(value)


def default_state() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(base) / "isfl"


def memory_folder(node: Node, run: str, make: bool = False) -> Path:
    """Of one run. The name comes over the network, so it must be a name and nothing else.

    A new one makes the oldest ones go; of those a mark is left, so that they are not taken for runs that never existed.
    """
    if not re.fullmatch(r"[0-9a-f]{32}", run):
        raise UserError("the run's key is not 32 hexadecimal digits")
    folder = _own_folder(node) / run
    if folder.with_suffix(".forgotten").exists():
        raise UserError(f"has forgotten this run: {RUNS_KEPT} others came after it")
    if make and not folder.exists():
        folder.mkdir(parents=True)
        runs = sorted((f for f in folder.parent.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime)
        for old in runs[:-RUNS_KEPT]:
            old.with_suffix(".forgotten").touch()
            shutil.rmtree(old, ignore_errors=True)
    return folder


def _own_folder(node: Node) -> Path:
    """Only its owner can read what is in it: probabilities give the label mix away."""
    folder = node.state / f"client-{node.client}"
    if not folder.exists():
        folder.mkdir(parents=True, mode=0o700)
    return folder


def remember(node: Node, run: str, round: int, memory: ClientMemory) -> None:
    """Keep a memory as it is after this round; a round that is done again replaces it."""
    folder = memory_folder(node, run, make=True)
    write_whole(folder / f"round-{round:06d}.safetensors", to_bytes(memory))
    files = sorted(folder.glob("round-*.safetensors"))
    later = [file for file in files if _round(file) > round]  # the server went back: they never happened
    for old in [*later, *files[: len(files) - len(later)][:-ROUNDS_KEPT]]:
        old.unlink(missing_ok=True)


def recall(node: Node, run: str, upto: int) -> ClientMemory:
    """The memory after round `upto`, or after the last round before it that the client took part in."""
    files = sorted(memory_folder(node, run).glob("round-*.safetensors"), reverse=True)
    for file in files:
        if _round(file) <= upto:
            return from_bytes(ClientMemory, file.read_bytes())
    return ClientMemory()


def _round(file: Path) -> int:
    return int(file.stem.removeprefix("round-"))


def told_first(node: Node, counts: np.ndarray, noised: np.ndarray) -> np.ndarray:
    """The noised counts that were told first for these counts, whatever the epsilon was.

    With new noise for every request, a server that asks often enough could average the noise away.
    """
    key = hashlib.sha256(json.dumps(counts.tolist()).encode()).hexdigest()[:32]
    file = _own_folder(node) / f"told-{key}.json"
    if file.exists():
        return np.array(json.loads(file.read_text(encoding="utf-8")), dtype=np.float64)
    write_whole(file, json.dumps(noised.tolist()).encode())
    return noised


def simulated_node(client: int, state: Path) -> Node:
    return replace(Node(client, state), simulated=True)
