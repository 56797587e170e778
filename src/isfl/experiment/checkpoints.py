"""Checkpoints: the state after a round, whole on disk or not there at all.

A checkpoint is two files: `round-N.safetensors` with every tensor and array, and `round-N.json` with the configuration
it belongs to, the length and SHA-256 of the growing files so far, and a SHA-256 of all of that and the tensors. Each is
written under a temporary name, synced and renamed, the JSON last: where it stands, the checkpoint is complete. The last
two are kept, so that a damaged one can be passed over. Weights that clients remember stay in the files their engine
wrote (`clients/`); the JSON names them, with their SHA-256. No pickle: nothing executes on reading.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from isfl import layout
from isfl.experiment.growing import Prefix, check_prefix
from isfl.federation.client_state import StoredState
from isfl.federation.values import ClientMemory, FederationState, ServerMemory, Weights
from isfl.files import write_whole

KEPT = 2
FORMAT = 3


@dataclass(frozen=True)
class Checkpoint:
    state: FederationState
    client_states: dict[int, StoredState]
    files: dict[str, Prefix]
    """The part of each growing file that belongs to the rounds so far."""
    config: str
    """SHA-256 of the configuration."""


def save_checkpoint(run: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of a round into `run/checkpoints`, then remove all but the last two."""
    directory, number = run / layout.CHECKPOINTS, checkpoint.state.round
    directory.mkdir(exist_ok=True)
    content = save(pack(checkpoint.state, checkpoint.client_states))
    described = {
        "format": FORMAT,
        "round": number,
        "config": checkpoint.config,
        "files": {name: asdict(prefix) for name, prefix in checkpoint.files.items()},
        "clients": {
            str(k): {"file": memory.file, "sha256": memory.sha256}
            for k, memory in checkpoint.client_states.items()
            if memory.file is not None
        },
    }
    write_whole(directory / f"round-{number:05d}.safetensors", content)
    manifest = {**described, "sha256": _digest(described, content)}
    write_whole(directory / f"round-{number:05d}.json", json.dumps(manifest, indent=2).encode())
    _keep(run, sorted(directory.glob("round-*.json"))[-KEPT:])


def latest_checkpoint(run: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are passed over with a warning and removed."""
    directory = run / layout.CHECKPOINTS
    candidates = sorted(directory.glob("round-*.json"), reverse=True)
    for i, manifest_file in enumerate(candidates):
        try:
            checkpoint = _read(run, manifest_file)
        except Exception as error:  # damage has many faces; whatever it is, the one before may be whole
            rest = "going back to the one before" if i + 1 < len(candidates) else "beginning again"
            warnings.warn(f"{manifest_file.stem} is damaged ({error}); {rest}", stacklevel=2)
        else:
            _keep(run, candidates[i:])
            return checkpoint
    _keep(run, [])
    return None


def _read(run: Path, manifest_file: Path) -> Checkpoint:
    manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
    content = manifest_file.with_suffix(".safetensors").read_bytes()
    described = {key: value for key, value in manifest.items() if key != "sha256"}
    if manifest["format"] != FORMAT or _digest(described, content) != manifest["sha256"]:
        raise ValueError("its checksum does not match")
    files = {name: Prefix(**prefix) for name, prefix in manifest["files"].items()}
    for name, prefix in files.items():
        check_prefix(run / name, prefix)
    state, client_states = unpack(load(content))
    for k, kept in manifest["clients"].items():
        stored = (run / layout.CLIENTS / kept["file"]).read_bytes()
        if hashlib.sha256(stored).hexdigest() != kept["sha256"]:
            raise ValueError(f"{layout.CLIENTS}/{kept['file']} is not what it was")
        client_states[int(k)] = replace(client_states.get(int(k), StoredState()), **kept)
    return Checkpoint(state, client_states, files, manifest["config"])


def _digest(described: Mapping[str, object], content: bytes) -> str:
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    digest.update(content)
    return digest.hexdigest()


def _keep(run: Path, manifests: Sequence[Path]) -> None:
    """Remove everything that belongs to no kept checkpoint, also what a killed process left half done."""
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
    """What a checkpoint names; nothing, if it cannot be read: then it is damaged and will be passed over."""
    try:
        return {kept["file"] for kept in json.loads(manifest.read_text(encoding="utf-8"))["clients"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def pack(state: FederationState, client_states: Mapping[int, StoredState]) -> Weights:
    """State and the small part of client_states as one flat dictionary of tensors; what is None is left out."""
    flat: Weights = {"state/round": torch.tensor(state.round)}
    _put(flat, "state/model", state.model)
    _put(flat, "state/first", state.server.first)
    _put(flat, "state/second", state.server.second)
    for name in ("target", "sizes", "counts", "probabilities", "lipschitz"):
        _put_array(flat, f"state/{name}", getattr(state, name))
    for k, memory in ((k, remembered.small) for k, remembered in client_states.items()):
        _put_array(flat, f"client/{k}/probabilities", memory.probabilities)
    return flat


def unpack(flat: Mapping[str, Tensor]) -> tuple[FederationState, dict[int, StoredState]]:
    """The inverse of `pack`."""

    def array(name: str) -> np.ndarray | None:
        return flat[name].numpy() if name in flat else None

    target, sizes = array("state/target"), array("state/sizes")
    assert target is not None and sizes is not None
    state = FederationState(
        round=int(flat["state/round"]),
        model=_take(flat, "state/model"),
        target=target,
        sizes=sizes,
        counts=array("state/counts"),
        probabilities=array("state/probabilities"),
        lipschitz=array("state/lipschitz"),
        server=ServerMemory(_take(flat, "state/first"), _take(flat, "state/second")),
    )
    client_states = {}
    for k in sorted({int(name.split("/")[1]) for name in flat if name.startswith("client/")}):
        client_states[k] = StoredState(ClientMemory(probabilities=array(f"client/{k}/probabilities")))
    return state, client_states


def _put(flat: Weights, prefix: str, weights: Weights) -> None:
    flat.update({f"{prefix}/{name}": value.contiguous().clone() for name, value in weights.items()})


def _put_array(flat: Weights, name: str, array: np.ndarray | None) -> None:
    if array is not None:
        flat[name] = torch.from_numpy(np.ascontiguousarray(array))


def _take(flat: Mapping[str, Tensor], prefix: str) -> Weights:
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in flat.items() if name.startswith(start)}
