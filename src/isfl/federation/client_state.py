"""What clients keep between rounds: models in files, so that absent clients cost no memory.

A file of a simulated client holds the models it remembers (its last local model, for MOON or to measure its own
Lipschitz values, and BatchNorm statistics). It is named after client and round, so that a round which is done again
never overwrites what an earlier checkpoint needs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from safetensors.torch import load, save

from isfl.errors import UserError
from isfl.federation.codec import decode, parts_of, split, to_tensors, without_models
from isfl.federation.values import ClientMemory
from isfl.files import write_whole


@dataclass(frozen=True)
class StoredState:
    """A client's memory with its models in a file."""

    small: ClientMemory = field(default_factory=ClientMemory)
    """Everything but the models."""
    file: str | None = None
    """Name of the file with the models; None if the client remembers none."""
    sha256: str = ""
    """Checksum of that file."""

    @property
    def is_empty(self) -> bool:
        """Whether the client remembers nothing."""
        return self.file is None and not any(part is not None for part in split(self.small)[1].values())


def store(directory: Path, client: int, round: int, memory: ClientMemory) -> StoredState:
    """Write the models of a memory to a file in `directory`; without models, write nothing."""
    models, rest = split(memory)
    small = without_models(ClientMemory, rest)
    if not any(models.values()):
        return StoredState(small)
    content = save(to_tensors(models))
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


def recall(directory: Path, stored: StoredState) -> ClientMemory:
    """Return the complete memory, models included."""
    if stored.file is None:
        return stored.small
    models = parts_of(ClientMemory, load((directory / stored.file).read_bytes()))
    return decode(ClientMemory, {**split(stored.small)[1], **models})
