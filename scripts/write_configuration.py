"""Write `docs/configuration.md` from the models that check a configuration: all keys with type, default and meaning.

python scripts/write_configuration.py
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types as limits
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from isfl.data import SOURCES
from isfl.federation.scheme import SHORTHANDS, Scheme
from isfl.models import MODELS
from isfl.problem.config import Config
from isfl.schema import Part

PAGE = Path(__file__).parent.parent / "docs/configuration.md"

INTRODUCTION = """\
# Configuration

<!-- Written by scripts/write_configuration.py from the models that check a configuration. Change those. -->

One TOML file describes a run. Every key has a default; where the paper gives a value, the default is that value.
Only the sizes of a split differ: their defaults fit the embedded data, so that an empty file runs.
`isfl run FILE --set KEY=VALUE` overrides a key of the file. For unknown keys, wrong types and values out of range,
isfl prints one line that names the key. A run directory holds the configuration with all defaults (`config.json`).

Some tables have several kinds. The key `kind` (or `rule`) selects the kind, and each kind has its own keys.
"""

SIGNS = {limits.Ge: ("≥", "ge"), limits.Gt: (">", "gt"), limits.Le: ("≤", "le"), limits.Lt: ("<", "lt")}
SCHEME_PARTS = ("sampling", "objective", "aggregation")
WORDS = {int: "whole number", float: "number", str: "text", bool: "`true` or `false`"}


def page() -> str:
    return "\n".join([INTRODUCTION, *section(Config, ())]) + "\n"


def section(model: type[Part], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the keys of a table, then the tables inside it."""
    tables = {name: parts_of(field.annotation) for name, field in model.model_fields.items()}
    yield from keys_of(model, without={name for name, parts in tables.items() if parts})
    for name, field in model.model_fields.items():
        if tables[name]:
            yield from table((*path, name), tables[name], field)
        elif entries := entries_of(field.annotation):
            yield f"{'#' * (len(path) + 2)} Entries of `{'.'.join((*path, name))}`\n"
            yield from kinds(entries, "kind")


def table(path: tuple[str, ...], parts: list[type[Part]], field: FieldInfo) -> Iterator[str]:
    """Yield the lines about a table of the file, with one part per kind."""
    yield f"{'#' * (len(path) + 1)} `[{'.'.join(path)}]`\n"
    if len(parts) == 1:
        yield f"{meaning_of(parts[0])}\n"
        if field.description:
            yield f"{field.description[0].upper()}{field.description[1:]}.\n"
        if path in NAMES:
            yield NAMES[path]()
        yield from section(parts[0], path)
        return
    key = str(field.discriminator or discriminator_in(field))
    given = default_kind(field, key)
    otherwise = f"`{given}`" if given else "that of the scheme's name"
    default = choice(type(field.default), key) if isinstance(field.default, Part) else given
    if default == given:
        yield f"`{key}` selects the kind; the default is {otherwise}.\n"
    else:
        absent = f"Without this table the {path[-1]} is `{default}`."
        yield f"`{key}` selects the kind. {absent} In a table without `{key}` it is {otherwise}.\n"
    yield from kinds(parts, key)


def kinds(parts: list[type[Part]], key: str) -> Iterator[str]:
    """Yield one paragraph and one table of keys per kind."""
    for part in parts:
        yield f'**`{key} = "{choice(part, key)}"`**: {meaning_of(part)}\n'
        yield from keys_of(part, without={key})


def keys_of(model: type[Part], without: set[str]) -> Iterator[str]:
    fields = {name: field for name, field in model.model_fields.items() if name not in without}
    if not fields:
        return
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        if not field.description:
            raise ValueError(f"{model.__name__}.{name} has no description: say what it means where it is defined")
        cells = (f"`{name}`", type_of(field), default_of(field), field.description)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def parts_of(annotation: Any) -> list[type[Part]]:
    """Return the models that an annotation allows; none for a plain value."""
    if get_origin(annotation) is Annotated:
        return parts_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for argument in get_args(annotation) for part in parts_of(argument)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, Part) else []


def entries_of(annotation: Any) -> list[type[Part]]:
    """Return the models that the entries of a list may be; none for other annotations."""
    return parts_of(get_args(annotation)[0]) if get_origin(annotation) is list else []


def default_kind(field: FieldInfo, key: str) -> str | None:
    """Return the kind of a table without the key: the one that the validator in front of it fills in."""
    fillers = [item for item in field.metadata if isinstance(item, BeforeValidator)]
    if fillers:
        return str(fillers[0].func({})[key])  # type: ignore[call-arg]
    return choice(type(field.default), key) if isinstance(field.default, Part) else None


def discriminator_in(field: FieldInfo) -> str:
    """Return the key that selects the kind, for a union that is wrapped once more for its default."""
    inner = [item for item in get_args(field.annotation) if isinstance(item, FieldInfo)]
    return str(inner[0].discriminator)


def choice(part: type[Part], key: str) -> str:
    return str(part.model_fields[key].default)


def meaning_of(part: Callable[..., Any]) -> str:
    """Return the docstring as Markdown: one line per paragraph, without indentation."""
    paragraphs = (part.__doc__ or "").strip().split("\n\n")
    return "\n\n".join(" ".join(line.strip() for line in text.splitlines()) for text in paragraphs)


def type_of(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {number(getattr(item, name))}"
        for item in field.metadata
        for kind, (sign, name) in SIGNS.items()
        if isinstance(item, kind)
    ]
    return " ".join([words_of(field.annotation), ", ".join(bounds)]).strip()


def words_of(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f'`"{value}"`' for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(words_of(argument) for argument in arguments if argument is not type(None))
    if entries_of(annotation):
        return "list of names and tables"
    if origin is list:
        inner = words_of(arguments[0])
        return f"list of {inner}s" if inner in WORDS.values() else f"list of {inner.replace('list', 'lists')}"
    return "table" if origin is dict else WORDS[annotation]


def number(value: float) -> str:
    return "2^63" if value == 2**63 else f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def shorthands() -> str:
    """Return the table of scheme names and the choices they stand for."""
    text = (
        'Without this table the scheme is `isfl`. `scheme = "moon"` is short for `scheme = {name = "moon"}`.\n'
        "A name stands for choices of the parts below; all other parts are those of `fedavg`:\n\n"
        "| name | stands for |\n|---|---|\n"
    )
    plain = Scheme.model_validate("fedavg").model_dump(include={part: {"rule", "kind"} for part in SCHEME_PARTS})
    for name, parts in {**SHORTHANDS, "fedavg": plain}.items():
        told = [f"`{key} = {toml(value)}`" for key, value in flat(parts)]
        text += f"| `{name}` | {', '.join(told)} |\n"
    return text


def flat(parts: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in parts.items():
        if isinstance(value, dict):
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def by_name(things: Mapping[str, Callable[..., Any]], own: str) -> str:
    """Return the table of things that have a name, with the first paragraph of their docstrings."""
    rows = [
        f"| `{name}` | {meaning_of(thing).partition(chr(10))[0]} |".replace("*", r"\*")
        for name, thing in things.items()
    ]
    return "\n".join(["| name | |", "|---|---|", *rows, f"| {own} | [your own](own.md) |", ""])


NAMES: dict[tuple[str, ...], Callable[[], str]] = {
    ("scheme",): shorthands,
    ("data",): lambda: by_name({name: source.load for name, source in SOURCES.items()}, "`module:function`"),
    ("model",): lambda: by_name({name: model.build for name, model in MODELS.items()}, "`module:Class`"),
}
"""Tables with a key whose values are listed in another table."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
