"""One way to write values down: a dataclass of `values.py` as named parts, and back.

A part is a model (weights by name), an array, a number or a text. The fields and type hints of the dataclass say which
parts there are; a dataclass inside of another one has its parts under its field's name (`server.first`). What is None
has no part. Client memories, checkpoints and messages all use this: a new field needs no code there.

A file of parts is one safetensors file, never pickle: nothing executes on reading. Reading is strict: a part that is
missing, unknown or of another type is a `CodecError` that names it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, assert_never, get_args, get_origin, get_type_hints

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from isfl.federation.values import Weights

Value = TypeVar("Value")
Part = Weights | np.ndarray | int | float | str
Parts = dict[str, Part]
"""By the path of their field."""
CHECKSUM = "sha256"
"""The key of a file's checksum."""


class CodecError(ValueError):
    """What was read is not a value of the expected kind; the message names the part."""


class Shape(Enum):
    """What a part can be; the name says it in an error message."""

    MODEL = "a model"
    ARRAY = "an array"
    INTEGER = "a whole number"
    FLOAT = "a number"
    TEXT = "a text"


@dataclass(frozen=True)
class Leaf:
    """A field that is one part."""

    shape: Shape
    optional: bool
    """It may be None."""


def leaves(kind: type) -> dict[str, Leaf]:
    """Return the parts a dataclass is made of, by path."""
    found: dict[str, Leaf] = {}
    for name, content in _structure(kind).items():
        if isinstance(content, Leaf):
            found[name] = content
        else:
            found |= {f"{name}.{path}": leaf for path, leaf in leaves(content).items()}
    return found


def encode(value: Any) -> Parts:
    """Return the parts of a dataclass; models and arrays are the value's own, not copies."""
    parts: Parts = {}
    for path, leaf in leaves(type(value)).items():
        content = value
        for name in path.split("."):
            content = getattr(content, name)
        if content is not None:
            parts[path] = _plain(content, leaf.shape)
    return parts


def decode(kind: type[Value], parts: Mapping[str, Any]) -> Value:
    """Return the value that has these parts."""
    unknown = parts.keys() - leaves(kind).keys()
    if unknown:
        raise CodecError(f"has {min(unknown)!r}, which is no part of a {kind.__name__}")
    return _built(kind, parts, "")


def split(value: Any) -> tuple[Parts, Parts]:
    """Return the models of a dataclass, which are large, and its other parts."""
    parts = encode(value)
    models = {path: part for path, part in parts.items() if isinstance(part, dict)}
    return dict(models), {path: part for path, part in parts.items() if path not in models}


def without_models(kind: type[Value], parts: Mapping[str, Part]) -> Value:
    """Return a value of these parts whose models are None, or empty where None is not allowed."""
    required = [path for path, leaf in leaves(kind).items() if leaf.shape is Shape.MODEL and not leaf.optional]
    return decode(kind, {**parts, **{path: {} for path in required}})


# ---------------------------------------------------------------- files


def to_tensors(parts: Mapping[str, Part]) -> Weights:
    """Return parts as one flat dictionary of tensors, copied: `path/name` for a model's weights, else `path`.

    `path/` alone marks a model, so that an empty one is not taken for none.
    """
    flat: Weights = {}
    for path, part in parts.items():
        if isinstance(part, dict):
            flat[f"{path}/"] = torch.empty(0)
            # Two names of one parameter are two entries in a file: safetensors refuses to guess.
            flat |= {f"{path}/{name}": value.contiguous().clone() for name, value in part.items()}
        elif isinstance(part, str):
            flat[path] = torch.tensor(list(part.encode()), dtype=torch.uint8)
        else:
            flat[path] = torch.from_numpy(np.array(part, order="C"))
    return flat


def from_tensors(kind: type[Value], flat: Mapping[str, Tensor]) -> Value:
    """Return the value of this kind whose parts were made into tensors."""
    return decode(kind, parts_of(kind, flat))


def parts_of(kind: type, flat: Mapping[str, Tensor]) -> Parts:
    """Return the parts in a dictionary of tensors, for a value of this kind."""
    known = leaves(kind)
    parts: Parts = {}
    for key, tensor in flat.items():
        path, slash, name = key.partition("/")
        if slash:
            model = parts.setdefault(path, {})
            if not isinstance(model, dict):
                raise CodecError(f"{path!r} is both a model and something else")
            model |= {name: tensor} if name else {}
        else:
            parts[path] = _from_tensor(path, tensor, known.get(path))
    return parts


def to_bytes(value: Any) -> bytes:
    """Return a dataclass as the content of a safetensors file, with a checksum in its metadata."""
    tensors = to_tensors(encode(value))
    return bytes(save(tensors, {CHECKSUM: _digest(tensors)}))


def from_bytes(kind: type[Value], content: bytes) -> Value:
    """Return the value in the content of a file that `to_bytes` made; a `CodecError` if one bit of it changed."""
    try:
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        known = header["__metadata__"][CHECKSUM]
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CodecError(f"cannot be read ({type(error).__name__})") from None
    if known != _digest(tensors):
        raise CodecError("its checksum does not match")
    return from_tensors(kind, tensors)


def _digest(tensors: Weights) -> str:
    """Return the SHA-256 of all names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# ---------------------------------------------------------------- fields


_KNOWN: dict[type, dict[str, Leaf | type]] = {}


def _structure(kind: type) -> dict[str, Leaf | type]:
    """Return what each field of a dataclass is: a part, or a dataclass of its own. Worked out once per kind."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind)
        _KNOWN[kind] = {
            part.name: hint if is_dataclass(hint) and isinstance(hint, type) else _leaf(kind, part.name, hint)
            for part in fields(kind)
            for hint in [hints[part.name]]
        }
    return _KNOWN[kind]


def _leaf(kind: type, name: str, hint: Any) -> Leaf:
    union = get_origin(hint) in (Union, UnionType)
    options = [option for option in (get_args(hint) if union else (hint,)) if option is not NoneType]
    optional = union and NoneType in get_args(hint)
    if len(options) == 1:
        only = options[0]
        if only == Weights:
            return Leaf(Shape.MODEL, optional)
        if np.ndarray in (only, get_origin(only)):
            return Leaf(Shape.ARRAY, optional)
        if only in _SIMPLE:
            return Leaf(_SIMPLE[only], optional)
    raise TypeError(f"{kind.__name__}.{name}: {hint} can neither be stored nor sent")


_SIMPLE = {int: Shape.INTEGER, float: Shape.FLOAT, str: Shape.TEXT}


def _plain(content: Any, shape: Shape) -> Part:
    match shape:
        case Shape.MODEL | Shape.ARRAY | Shape.TEXT:
            part: Part = content
            return part
        case Shape.INTEGER:
            return int(content)
        case Shape.FLOAT:
            return float(content)
    assert_never(shape)


def _built(kind: type[Value], parts: Mapping[str, Any], prefix: str) -> Value:
    found: dict[str, Any] = {}
    for name, content in _structure(kind).items():
        path = prefix + name
        if isinstance(content, Leaf):
            found[name] = _checked(path, parts.get(path), content)
        else:
            found[name] = _built(content, parts, f"{path}.")
    return kind(**found)


def _checked(path: str, content: Any, leaf: Leaf) -> Part | None:
    if content is None:
        if leaf.optional:
            return None
        raise CodecError(f"lacks {path!r}")
    if not _fits(content, leaf.shape):
        raise CodecError(f"{path!r} is {type(content).__name__}, not {leaf.shape.value}")
    return float(content) if leaf.shape is Shape.FLOAT else content


def _fits(content: Any, shape: Shape) -> bool:
    match shape:
        case Shape.MODEL:
            return isinstance(content, dict)
        case Shape.ARRAY:
            return isinstance(content, np.ndarray)
        case Shape.INTEGER:
            return type(content) is int  # a bool is none
        case Shape.FLOAT:
            return type(content) in (int, float)
        case Shape.TEXT:
            return isinstance(content, str)
    assert_never(shape)


def _from_tensor(path: str, tensor: Tensor, leaf: Leaf | None) -> Part:
    """Return an array, or the number or text that a field of this path holds."""
    if leaf is None or leaf.shape in (Shape.ARRAY, Shape.MODEL):
        return tensor.numpy()
    if leaf.shape is Shape.TEXT and tensor.dtype == torch.uint8 and tensor.dim() == 1:
        return bytes(tensor.tolist()).decode(errors="replace")
    if leaf.shape is not Shape.TEXT and tensor.dim() == 0:
        number: int | float = tensor.item()
        return number
    raise CodecError(f"{path!r} is an array of {tensor.dtype}, not {leaf.shape.value}")
