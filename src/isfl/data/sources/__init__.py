"""Data sets by name.

To add a data set, write a file with a function that loads it and a `NamedSource`, and add the file's name to `FILES`.
"""

from __future__ import annotations

from dataclasses import replace

from isfl.data.cache import store
from isfl.data.given import source_of
from isfl.data.normalize import normalized, shaped
from isfl.data.own import PYTHON, call, resolve
from isfl.data.sources.base import DataSettings, NamedSource, Source
from isfl.errors import UserError
from isfl.schema import entries_in

FILES = (
    "fashion_mnist",
    "cifar",
    "digits",
    "own_files",
    "csv_files",
    "leaf",
)
SOURCES = {source.name: source for source in entries_in(__name__, FILES, NamedSource)}


def load(settings: DataSettings, known: Source | None = None) -> Source:
    """Return the data set that the settings name, normalised as they ask; `known` saves reading it again."""
    source = known or read(settings)
    parts = (source.train, source.test)
    train, test = (normalized(shaped(part, settings.shape), settings.normalize) for part in parts)
    return replace(source, train=train, test=test)


def read(settings: DataSettings) -> Source:
    """Return the data set that the settings name, as it is stored."""
    key = f"data.name = {settings.name!r}"
    if settings.name == PYTHON:
        raise UserError(f"{key}: the data was given from Python; give it again, with isfl.resume(DIRECTORY, data=...)")
    if ":" in settings.name:
        return source_of(call(resolve(settings.name, "data.name"), key), key)
    if settings.name not in SOURCES:
        raise UserError(f"data.name is {settings.name!r}; choose one of {', '.join(SOURCES)}, or module:function")
    return SOURCES[settings.name].load(settings)


def keep(name: str, source: Source) -> None:
    """Put a data set into the cache, so that its name alone is enough to load it."""
    cached = [name for name, known in SOURCES.items() if known.cached]
    if name not in cached:
        raise UserError(f"{name!r} is not read from the cache; only {' and '.join(cached)} are")
    store(
        name,
        {
            f"{part}_{what}": tensor.numpy()
            for part, data in (("train", source.train), ("test", source.test))
            for what, tensor in (("images", data.stored()), ("labels", data.labels))
        },
    )


__all__ = ["SOURCES", "DataSettings", "NamedSource", "Source", "keep", "load", "read"]
