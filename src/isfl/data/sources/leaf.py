"""Federated data in the JSON files of LEAF, such as FEMNIST: Caldas et al., "LEAF: A Benchmark for Federated Settings",
2018."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from isfl.data.given import natural_source
from isfl.data.parts import Chunk
from isfl.data.pictures import CHUNK
from isfl.data.sources.base import DataSettings, NamedSource, Source, numbered, required_path
from isfl.errors import UserError

KEYS = ("users", "num_samples", "user_data")


@dataclass(frozen=True)
class User:
    """The samples of one user. Files are read one at a time, and again when their samples are taken."""

    file: Path
    name: str
    labels: tuple[Any, ...]
    classes: tuple[str, ...] | None = None

    @property
    def where(self) -> str:
        return f"{self.file}: user {self.name!r}"

    def __len__(self) -> int:
        return len(self.labels)

    def chunks(self) -> Iterator[Chunk]:
        inputs = content_of(self.file)["user_data"][self.name]["x"]
        for start in range(0, len(self), CHUNK):
            rows = slice(start, start + CHUNK)
            yield [_numbers(value, self.where) for value in inputs[rows]], list(self.labels[rows])


def leaf(settings: DataSettings) -> Source:
    """Federated data with one client per user: data.path with train/*.json and test/*.json in the format of LEAF."""
    path = required_path(settings)
    train, test = users_in(path / "train"), users_in(path / "test")
    found = [label for user in (*train, *test) for label in user.labels if isinstance(label, int)]
    classes = max(found, default=0) + 1
    known = numbered(classes) if classes <= sum(map(len, train)) else None
    clients = {user.name: user for user in train}
    return natural_source(clients, test, known, str(path))


def users_in(folder: Path) -> list[User]:
    """Return the users of all files of a folder, in the order of the files; no user may occur twice."""
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not files:
        raise UserError(f"{folder}: holds no .json file; data.path needs the folders train and test of LEAF")
    users: dict[str, User] = {}
    for file in files:
        for user in _users_of(file):
            if user.name in users:
                raise UserError(f"{user.where}: is in {users[user.name].file.name} too; a user belongs to one file")
            users[user.name] = user
    return list(users.values())


@lru_cache(maxsize=1)
def content_of(file: Path) -> dict[str, Any]:
    """Return what a file holds; the last file stays in memory."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: cannot be read as JSON ({str(error).splitlines()[0]})") from None
    missing = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if missing:
        raise UserError(f"{file}: has no key {missing[0]!r}; files of LEAF have {', '.join(KEYS)}")
    return content


def _users_of(file: Path) -> Iterator[User]:
    content = content_of(file)
    names, sizes, data = (content[key] for key in KEYS)
    if not isinstance(names, list) or not isinstance(sizes, list) or not isinstance(data, dict):
        raise UserError(f"{file}: users and num_samples must be lists, and user_data an object")
    if len(names) != len(sizes):
        raise UserError(f"{file}: has {len(names)} users but {len(sizes)} values of num_samples")
    for name, size in zip(map(str, names), sizes, strict=True):
        where = f"{file}: user {name!r}"
        samples = data.get(name)
        if not isinstance(samples, dict) or not all(isinstance(samples.get(key), list) for key in ("x", "y")):
            raise UserError(f"{where}: user_data needs an object with the lists x and y for every user")
        found = len(samples["x"]), len(samples["y"])
        if found != (size, size):
            raise UserError(f"{where}: num_samples is {size}, but there are {found[0]} x and {found[1]} y")
        if size == 0:
            raise UserError(f"{where}: has no samples; leave the user out")
        yield User(file, name, tuple(samples["y"]))


def _numbers(value: Any, where: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray("")
    if array.dtype.kind not in "iuf":
        raise UserError(f"{where}: x holds {type(value).__name__}s, not numbers; convert text and file names first")
    return array


LEAF = NamedSource("leaf", leaf)
