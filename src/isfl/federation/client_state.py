"""What clients keep between rounds: tensors in files, so that absent clients cost no memory.

A file of a simulated client holds the weights it remembers (its last local model, for MOON or to measure its own
Lipschitz values, and BatchNorm statistics) and is named after client and round, so that a round which is done again
never writes over what an earlier checkpoint needs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save

from isfl.errors import UserError
from isfl.federation.values import ClientMemory, Weights
from isfl.files import write_whole

LOCAL, STATISTICS = "local_model/", "statistics/"


@dataclass(frozen=True)
class StoredState:
    """A client's memory: what is small as it is, its weights by the name of their file."""

    small: ClientMemory = field(default_factory=ClientMemory)
    file: str | None = None
    sha256: str = ""


def store(directory: Path, client: int, round: int, memory: ClientMemory) -> StoredState:
    """Put the weights of a memory aside; without any, nothing is written."""
    small = replace(memory, local_model=None, statistics={})
    weights = {**_prefixed(LOCAL, memory.local_model or {}), **_prefixed(STATISTICS, memory.statistics)}
    if not weights:
        return StoredState(small)
    content = save(weights)
    name = f"client-{client:05d}-round-{round:05d}.safetensors"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / name, content)
    except OSError as error:
        raise UserError(
            f"{directory / name}: cannot be written ({error.strerror}); the last checkpoint is intact: make room and "
            "resume with isfl resume"
        ) from None
    return StoredState(small, name, hashlib.sha256(content).hexdigest())


def recall(directory: Path, remembered: StoredState) -> ClientMemory:
    """The whole memory."""
    if remembered.file is None:
        return remembered.small
    weights = load((directory / remembered.file).read_bytes())
    return replace(remembered.small, local_model=_taken(LOCAL, weights) or None, statistics=_taken(STATISTICS, weights))


def memory_bytes(memory: ClientMemory) -> bytes:
    """All of a memory in one file, for a client on a machine of its own."""
    weights = {**_prefixed(LOCAL, memory.local_model or {}), **_prefixed(STATISTICS, memory.statistics)}
    if memory.probabilities is not None:
        weights["probabilities"] = torch.from_numpy(np.ascontiguousarray(memory.probabilities))
    return bytes(save(weights))


def memory_from(content: bytes) -> ClientMemory:
    """The inverse of `memory_bytes`."""
    weights = load(content)
    return ClientMemory(
        local_model=_taken(LOCAL, weights) or None,
        statistics=_taken(STATISTICS, weights),
        probabilities=weights["probabilities"].numpy() if "probabilities" in weights else None,
    )


def _prefixed(prefix: str, weights: Weights) -> Weights:
    # Two names of one parameter are two entries in a file: safetensors refuses to guess.
    return {prefix + name: value.contiguous().clone() for name, value in weights.items()}


def _taken(prefix: str, weights: Weights) -> Weights:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
