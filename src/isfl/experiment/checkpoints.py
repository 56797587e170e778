"""Checkpoints: the state after a round, complete on disk or absent.

A checkpoint is two files: `round-N.safetensors` with every part of the state, and `round-N.json` with the configuration
it belongs to, the length and SHA-256 of the growing files so far, and a SHA-256 of all of that and the tensors. Each is
written under a temporary name, synced and renamed, the JSON last: where it exists, the checkpoint is complete. The last
two are kept, so that a damaged one can be skipped. Models that clients remember stay in the files their engine wrote;
the JSON names them, with their SHA-256. `federation/codec.py` turns values into tensors: no pickle, nothing executes on
reading.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from isfl import layout
from isfl.errors import UserError
from isfl.experiment.growing import Prefix, is_prefix
from isfl.federation.client_state import StoredState
from isfl.federation.codec import encode, from_tensors, parts_of, split, to_tensors, without_models
from isfl.federation.values import ClientMemory, FederationState, Weights
from isfl.files import write_whole

KEPT = 2
FORMAT = 5
STATE = "state"
"""Begins the names of the state's tensors. A colon follows."""
CLIENTS = "clients"
"""Begins the names of what clients remember; the number of a group of clients and a colon follow."""


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on after a round."""

    state: FederationState
    client_states: dict[int, StoredState]
    files: dict[str, Prefix]
    """The part of each growing file that belongs to the rounds so far."""
    config: str
    """SHA-256 of the configuration."""


def save_checkpoint(run: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of a round to a run directory, then remove all but the last two."""
    directory, number = run / layout.CHECKPOINTS, checkpoint.state.round
    directory.mkdir(exist_ok=True)
    content = save(_tensors(checkpoint))
    described = {
        "format": FORMAT,
        "round": number,
        "config": checkpoint.config,
        "files": {name: asdict(prefix) for name, prefix in checkpoint.files.items()},
        "clients": {
            str(k): {"file": stored.file, "sha256": stored.sha256}
            for k, stored in checkpoint.client_states.items()
            if stored.file is not None
        },
    }
    write_whole(directory / f"round-{number:05d}.safetensors", content)
    manifest = {**described, "sha256": _digest(described, content)}
    write_whole(directory / f"round-{number:05d}.json", json.dumps(manifest, indent=2).encode())
    _keep(run, sorted(directory.glob("round-*.json"))[-KEPT:])


def latest_checkpoint(run: Path) -> Checkpoint | None:
    """Return the newest complete checkpoint; skip damaged ones with a warning and remove them."""
    directory = run / layout.CHECKPOINTS
    candidates = sorted(directory.glob("round-*.json"), reverse=True)
    for i, manifest_file in enumerate(candidates):
        try:
            checkpoint = _read(run, manifest_file)
        except UserError:
            raise
        except Exception as error:  # damage has many forms; whatever it is, the one before may be complete
            rest = "going back to the one before" if i + 1 < len(candidates) else "beginning again"
            warnings.warn(f"{manifest_file.stem} is damaged ({error}); {rest}", stacklevel=2)
        else:
            _keep(run, candidates[i:])
            return checkpoint
    _keep(run, [])
    return None


def last_checkpoint(run: Path) -> tuple[FederationState, dict[str, Prefix]] | None:
    """Return the newest checkpoint's state and the growing files as they were; None if it is absent or damaged."""
    for manifest_file in sorted((run / layout.CHECKPOINTS).glob("round-*.json"))[-1:]:
        try:
            manifest, content = _content(manifest_file)
            files = {name: Prefix(**prefix) for name, prefix in manifest["files"].items()}
            return _values(load(content))[0], files
        except Exception as error:  # damage has many forms
            warnings.warn(f"{manifest_file.stem} is damaged ({error}); the run cannot be checked", stacklevel=3)
    return None


def _content(manifest_file: Path) -> tuple[dict[str, Any], bytes]:
    """Return the description of a checkpoint and its tensors, as they were written."""
    manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
    content = manifest_file.with_suffix(".safetensors").read_bytes()
    described = {key: value for key, value in manifest.items() if key != "sha256"}
    if _digest(described, content) != manifest["sha256"]:
        raise ValueError("its checksum does not match")
    return manifest, content


def _read(run: Path, manifest_file: Path) -> Checkpoint:
    manifest, content = _content(manifest_file)
    if manifest["format"] != FORMAT:
        raise UserError(
            f"{run}: its checkpoints have format {manifest['format']}, this version of isfl resumes format {FORMAT}; "
            f"resume with the version named in {layout.ENVIRONMENT}, or start a new run"
        )
    files = {name: Prefix(**prefix) for name, prefix in manifest["files"].items()}
    for name, prefix in files.items():
        if not is_prefix(run / name, prefix):
            raise ValueError(f"{name} is not what it was")
    state, memories = _values(load(content))
    client_states = {k: StoredState(memory) for k, memory in memories.items()}
    for k, kept in manifest["clients"].items():
        _check_client_file(run, **kept)
        client_states[int(k)] = replace(client_states.get(int(k), StoredState()), **kept)
    return Checkpoint(state, client_states, files, manifest["config"])


def _check_client_file(run: Path, file: str, sha256: str) -> None:
    if hashlib.sha256((run / layout.CLIENTS / file).read_bytes()).hexdigest() != sha256:
        raise ValueError(f"{layout.CLIENTS}/{file} is not what it was")


def _digest(described: Mapping[str, Any], content: bytes) -> str:
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    digest.update(content)
    return digest.hexdigest()


def _keep(run: Path, manifests: Sequence[Path]) -> None:
    """Remove everything that belongs to no kept checkpoint, also incomplete files of a killed process."""
    stems = {file.stem for file in manifests}
    for file in (run / layout.CHECKPOINTS).glob("round-*"):
        if file.stem not in stems or file.suffix == ".tmp":
            file.unlink(missing_ok=True)
    if (run / layout.CLIENTS).is_dir():
        named = {name for manifest in manifests for name in _client_files(manifest)}
        for file in (run / layout.CLIENTS).glob("client-*"):
            if file.name not in named:
                file.unlink(missing_ok=True)


def _client_files(manifest: Path) -> set[str]:
    """Return the files a checkpoint names; none if it cannot be read: then it is damaged and will be skipped."""
    try:
        return {kept["file"] for kept in json.loads(manifest.read_text(encoding="utf-8"))["clients"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _tensors(checkpoint: Checkpoint) -> Weights:
    """Return the state and the client memories without their models as one dictionary.

    Clients whose memories have the same parts are a group, with one tensor per part: a file of safetensors may name a
    million clients, but not a million tensors.
    """
    groups: dict[tuple[Any, ...], dict[int, Weights]] = {}
    for k, stored in sorted(checkpoint.client_states.items()):
        if own := to_tensors(split(stored.small)[1]):
            kind = tuple((path, tensor.dtype, tensor.shape) for path, tensor in sorted(own.items()))
            groups.setdefault(kind, {})[k] = own
    named = {STATE: to_tensors(encode(checkpoint.state))}
    for number, group in enumerate(groups.values()):
        paths = next(iter(group.values()))
        together = {path: torch.stack([own[path] for own in group.values()]) for path in paths}
        named[f"{CLIENTS}{number}"] = {"": torch.tensor(list(group)), **together}
    return {f"{name}:{path}": tensor for name, tensors in named.items() for path, tensor in tensors.items()}


def _values(tensors: Weights) -> tuple[FederationState, dict[int, ClientMemory]]:
    """Return what `_tensors` was made of."""
    named: dict[str, Weights] = {STATE: {}}
    for key, tensor in tensors.items():
        name, _, path = key.partition(":")
        named.setdefault(name, {})[path] = tensor
    state, memories = from_tensors(FederationState, named.pop(STATE)), {}
    for group in named.values():
        for i, k in enumerate(group.pop("").tolist()):
            parts = parts_of(ClientMemory, {path: tensor[i] for path, tensor in group.items()})
            memories[k] = without_models(ClientMemory, parts)
    return state, memories
