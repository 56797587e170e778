"""The base of everything a user can write into a configuration."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from importlib import import_module
from operator import or_
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Part(BaseModel):
    """Settings are frozen, finite values of the right type; an unknown key is an error, not a surprise."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def default_choice(key: str, value: str) -> BeforeValidator:
    """A table that does not say which kind it is means the default one: `[split] clients = 5` is a mixed split."""

    def fill(given: Any) -> Any:
        return {key: value, **given} if isinstance(given, dict) else given

    return BeforeValidator(fill)


Base = TypeVar("Base", bound=Part)
Entry = TypeVar("Entry")


def choices_in(package: str, files: Sequence[str], base: type[Base]) -> tuple[type[Base], ...]:
    """The subclasses of `base` that these files of a package define, in the order given."""
    found: list[type[Base]] = []
    for name in files:
        module = import_module(f"{package}.{name}")
        found += [
            item
            for item in vars(module).values()
            if isinstance(item, type) and issubclass(item, base) and item.__module__ == module.__name__
        ]
    return tuple(found)


def entries_in(package: str, files: Sequence[str], kind: type[Entry]) -> tuple[Entry, ...]:
    """Return the values of type `kind` that these files of a package define, in the order given."""
    modules = [import_module(f"{package}.{name}") for name in files]
    return tuple(item for module in modules for item in vars(module).values() if isinstance(item, kind))


def one_of(choices: Sequence[type[Part]], key: str) -> Any:
    """The type of a table that is one of these kinds, told by `key`."""
    return Annotated[reduce(or_, choices), Field(discriminator=key)]


class Meant(Protocol):
    """Something that a user chooses by name."""

    @property
    def meaning(self) -> str:
        """Return what it is, in one phrase."""


def name_of(listed: Iterable[str]) -> Any:
    """Return the type of a key whose value is one of these names."""
    return Literal[tuple(listed)]


def with_meanings(key: str, listed: Mapping[str, Meant]) -> str:
    """Return the description of a key that names one of the things listed."""
    return f"{key}: " + "; ".join(f"`{name}` ({thing.meaning})" for name, thing in listed.items())
