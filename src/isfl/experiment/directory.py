"""The run directory: the truth about a run, from which everything shown to a person is derived.

`isfl/layout.py` says which files it holds.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from isfl import layout
from isfl.errors import UserError
from isfl.experiment.checkpoints import Checkpoint, last_checkpoint, latest_checkpoint, save_checkpoint
from isfl.experiment.environment import FORMAT, environment
from isfl.experiment.growing import GrowingFile, is_prefix
from isfl.federation.client_state import StoredState
from isfl.federation.values import FederationState, Weights
from isfl.files import appear, read_object, write_whole

LOCAL: Mapping[str, Any] = {"kind": "local"}
"""The engine of a run on this machine, in `run.json`."""

_LOCKS: list[TextIOWrapper] = []
"""Held by this process. A forked worker closes them, or they would stay locked after this process ends."""


def _let_go() -> None:
    for stream in _LOCKS:
        stream.close()


os.register_at_fork(after_in_child=_let_go)


class RunDirectory:
    """The files of one run. A file appears when it is complete; the growing ones grow by complete lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._growing = {name: GrowingFile(path / name) for name in layout.GROWING}
        self.model = path / layout.MODEL

    @classmethod
    def create(
        cls, path: Path, config: Mapping[str, Any], split: Mapping[str, Any], engine: Mapping[str, Any] = LOCAL
    ) -> RunDirectory:
        """Create the directory with its description, at once. `engine` says where the run takes place."""
        refuse_used(path)
        described = {
            layout.CONFIG: config,
            layout.SPLIT: split,
            layout.ENVIRONMENT: {**environment(), "engine": engine},
        }
        files = {name: (json.dumps(value, indent=2) + "\n").encode() for name, value in described.items()}
        files[layout.CHECKSUMS] = json.dumps({name: _sha256(content) for name, content in files.items()}).encode()
        try:
            appear(path, files | dict.fromkeys(layout.GROWING, b""))
        except OSError as error:
            raise UserError(f"{path}: the run directory cannot be written ({error.strerror})") from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open a directory that `create` made; refuse one of another format."""
        try:
            written = read_object(path / layout.ENVIRONMENT)
            read_object(path / layout.CONFIG)
        except FileNotFoundError as error:
            missing = Path(str(error.filename)).name
            raise UserError(f"{path}: not a run directory (it has no {missing}); start with isfl run") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: its description cannot be read ({error})") from None
        if written.get("format") != FORMAT:
            raise UserError(f"{path}: written in another format than this version of isfl reads ({FORMAT})")
        _refuse_changed_description(path)
        return cls(path)

    @property
    def config(self) -> dict[str, Any]:
        return read_object(self.path / layout.CONFIG)

    @property
    def split(self) -> dict[str, Any]:
        try:
            return read_object(self.path / layout.SPLIT)
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / layout.SPLIT}: cannot be read ({error}); put it back") from None

    @property
    def class_names(self) -> list[str]:
        names = self.split.get("class_names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{self.path / layout.SPLIT}: class_names is not a list of names; put the file back")
        return names

    @property
    def environment(self) -> dict[str, Any]:
        """What `environment` returned when the run was created, and its engine."""
        return read_object(self.path / layout.ENVIRONMENT)

    @property
    def engine(self) -> dict[str, Any]:
        """Where the run takes place; local if the directory does not say."""
        engine: dict[str, Any] = self.environment.get("engine", dict(LOCAL))
        return engine

    @property
    def finished(self) -> bool:
        return self.model.exists()

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """Lock the run for this process; wait `patience` seconds for another process to release it."""
        try:
            opened = (self.path / layout.LOCK).open("w")
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror}); make room and resume") from None
        with opened as stream:
            end = time.monotonic() + patience
            while not _taken(stream):
                if time.monotonic() >= end:
                    raise UserError(f"{self.path}: another process is working on this run")
                time.sleep(0.1)
            _LOCKS.append(stream)
            try:
                yield
            finally:
                _LOCKS.remove(stream)

    def restore(self) -> Checkpoint | None:
        """Return the last complete checkpoint, and cut the lines of later rounds: they will be written again."""
        checkpoint = latest_checkpoint(self.path)
        if checkpoint is not None and checkpoint.config != self._config_digest:
            raise UserError(
                f"{self.path}: {layout.CONFIG} is not the configuration its checkpoints were written with; put it "
                "back, or start a new run"
            )
        with told_when_full(self.path):
            for name, file in self._growing.items():
                file.cut(checkpoint.files[name].bytes if checkpoint else 0)
        return checkpoint

    def check_finished(self) -> None:
        """Compare a finished run with its last checkpoint, if that is whole; write a damaged model again.

        A changed growing file is refused: to write it again is to repeat rounds, which the user should decide.
        """
        last = last_checkpoint(self.path)
        if last is None:
            return
        state, files = last
        for name, prefix in files.items():
            if not is_prefix(self.path / name, prefix, whole=True):
                raise UserError(
                    f"{self.path / name}: is not what it was when the run finished; put it back, or remove "
                    f"{layout.MODEL} and resume to repeat the rounds"
                )
        if not _holds(self.model, state.model):
            warnings.warn(f"{self.model} is damaged; writing it again from the last checkpoint", stacklevel=2)
            self.finish(state.model)

    @property
    def model_is_damaged(self) -> bool:
        """Whether the final model differs from the last checkpoint, if that is whole."""
        last = last_checkpoint(self.path)
        return last is not None and not _holds(self.model, last[0].model)

    def record(
        self,
        state: FederationState,
        client_states: Mapping[int, StoredState],
        metrics: Mapping[str, Any],
        probabilities: Mapping[str, Any],
    ) -> None:
        """Write the lines of a round, then its checkpoint. Ctrl-C takes effect afterwards."""
        with uninterrupted(), told_when_full(self.path):
            self._growing[layout.METRICS].append(metrics)
            self._growing[layout.PROBABILITIES].append(probabilities)
            files = {name: file.prefix for name, file in self._growing.items()}
            save_checkpoint(self.path, Checkpoint(state, dict(client_states), files, self._config_digest))

    def finish(self, weights: Weights) -> None:
        with uninterrupted(), told_when_full(self.path):
            write_whole(self.model, save({name: value.contiguous() for name, value in weights.items()}))

    @cached_property
    def _config_digest(self) -> str:
        return _sha256((self.path / layout.CONFIG).read_bytes())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refuse_changed_description(path: Path) -> None:
    """Refuse a run whose description changed since it began; runs of earlier versions have no checksums."""
    if not (path / layout.CHECKSUMS).exists():
        return
    try:
        known = read_object(path / layout.CHECKSUMS)
        changed = [name for name in layout.DESCRIPTION if _sha256((path / name).read_bytes()) != known.get(name)]
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: its description cannot be read ({error})") from None
    if changed:
        raise UserError(
            f"{path / changed[0]}: is not what it was when the run began ({layout.CHECKSUMS}); put it back, or start a "
            "new run"
        )


def _holds(file: Path, weights: Weights) -> bool:
    """Return whether a file holds exactly these weights."""
    try:
        found = load(file.read_bytes())
    except Exception:  # damage has many forms
        return False
    return found.keys() == weights.keys() and all(_same_bits(found[name], weights[name]) for name in found)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal to the last bit; NaN equals itself."""
    same = one.dtype == other.dtype and one.shape == other.shape
    return same and torch.equal(*(value.contiguous().reshape(-1).view(torch.uint8) for value in (one, other)))


def _taken(stream: TextIOWrapper) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block. (Only the main thread receives it.)"""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        pressed.append(number)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def told_when_full(path: Path) -> Iterator[None]:
    """Turn errors of the disk into a `UserError` that says how to resume."""
    try:
        yield
    except OSError as error:
        free = shutil.disk_usage(path).free if path.exists() else 0
        raise UserError(
            f"{path}: cannot be written ({error.strerror}; {free >> 20} MB free); the last checkpoint is intact: make "
            f"room and resume with isfl resume {path}"
        ) from None


def refuse_used(path: Path) -> None:
    """Refuse a directory that is not empty: nothing is ever overwritten."""
    try:
        used = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        raise UserError(f"{path}: cannot be used as a run directory ({error.strerror})") from None
    if used:
        raise UserError(f"{path}: exists and is not empty; give another --out, remove it, or use isfl resume")
