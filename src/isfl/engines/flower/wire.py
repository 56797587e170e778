"""The values of `isfl.federation` as Flower records, and back.

A value becomes a `RecordDict`: one `ArrayRecord` for each of its models, and one `ConfigRecord` with its numbers and
vectors. Nothing is pickled, and what comes back is read with distrust: a record that lacks something or has it in the
wrong type is a `WireError` that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType, NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from isfl.federation.values import Weights

NUMBERS = "values"
"""Name of the record with everything that is not a model."""

Value = TypeVar("Value")


class WireError(ValueError):
    """A record that is not what it should be."""


def encode(value: Any, ready: Mapping[int, ArrayRecord] = MappingProxyType({})) -> RecordDict:
    """A dataclass of models, arrays and numbers; what is None is left out.

    `ready` has models that are records already, by `id`: one for many clients is encoded once.
    """
    records = RecordDict()
    numbers = ConfigRecord()
    for part in fields(value):
        content = getattr(value, part.name)
        if isinstance(content, dict):
            records[part.name] = ready.get(id(content)) or arrays_of(content)
        elif isinstance(content, np.ndarray):
            numbers[part.name] = [float(number) for number in content]
        elif content is not None:
            numbers[part.name] = content if isinstance(content, float | str) else int(content)
    records[NUMBERS] = numbers
    return records


def decode(kind: type[Value], records: RecordDict) -> Value:
    """A value of this kind from its records."""
    numbers = records.get(NUMBERS)
    if not isinstance(numbers, ConfigRecord):
        raise WireError(f"lacks the record {NUMBERS!r}")
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if hint == Weights:
            found[name] = weights_of(records.get(name), name)
        elif name in numbers:
            found[name] = _number(numbers[name], hint, name)
        elif NoneType in get_args(hint):
            found[name] = None
        else:
            raise WireError(f"lacks {name!r}")
    return kind(**found)


def arrays_of(weights: Weights) -> ArrayRecord:
    return ArrayRecord({name: Array(value.detach().cpu().contiguous().numpy()) for name, value in weights.items()})


def weights_of(record: Any, name: str) -> Weights:
    if not isinstance(record, ArrayRecord):
        raise WireError(f"lacks the arrays {name!r}")
    return {key: _tensor(array, key) for key, array in record.items()}


def _tensor(array: Array, name: str) -> Tensor:
    try:
        return torch.from_numpy(array.numpy())
    except Exception as error:  # bytes from another machine can be wrong in many ways
        raise WireError(f"{name!r} cannot be read ({type(error).__name__})") from None


def _number(content: Any, hint: Any, name: str) -> Any:
    kinds = {hint, *get_args(hint)}
    if int in kinds and type(content) is int:
        return content
    if float in kinds and type(content) in (int, float):
        return float(content)
    if np.ndarray in {getattr(kind, "__origin__", kind) for kind in kinds} and _is_vector(content):
        return np.array(content, dtype=np.float64)
    raise WireError(f"{name!r} is {type(content).__name__}, not what it should be")


def _is_vector(content: Any) -> bool:
    return isinstance(content, list) and all(type(number) in (int, float) for number in content)
