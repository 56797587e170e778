"""The values of `isfl.federation` as Flower records, and back.

`federation/codec.py` takes a value apart; here its parts become a `RecordDict`: one `ArrayRecord` for each model, and
one `ConfigRecord` with its numbers and vectors. Nothing is pickled, and nothing that arrives is trusted: a record that
lacks a part or has it in the wrong type is a `CodecError` that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from isfl.federation import codec
from isfl.federation.codec import CodecError, Shape
from isfl.federation.values import Weights

NUMBERS = "values"
"""Name of the record with everything that is not a model."""

Value = TypeVar("Value")


def encode(value: Any, ready: Mapping[int, ArrayRecord] = MappingProxyType({})) -> RecordDict:
    """Return the records of a dataclass.

    `ready` has models that are records already, by `id`: one for many clients is encoded once.
    """
    records, numbers = RecordDict(), ConfigRecord()
    for path, part in codec.encode(value).items():
        if isinstance(part, dict):
            records[path] = ready.get(id(part)) or arrays_of(part)
        elif isinstance(part, np.ndarray):
            numbers[path] = [float(number) for number in part]
        else:
            numbers[path] = part
    records[NUMBERS] = numbers
    return records


def decode(kind: type[Value], records: RecordDict) -> Value:
    """Return the value of this kind in a message's records; records with other names are ignored."""
    numbers = records.get(NUMBERS)
    if not isinstance(numbers, ConfigRecord):
        raise CodecError(f"lacks the record {NUMBERS!r}")
    parts: dict[str, Any] = {path: _vector(content) for path, content in numbers.items()}
    for path, leaf in codec.leaves(kind).items():
        if leaf.shape is Shape.MODEL and (path in records or not leaf.optional):
            parts[path] = weights_of(records.get(path), path)
    return codec.decode(kind, parts)


def arrays_of(weights: Weights) -> ArrayRecord:
    """Return a model as a record."""
    return ArrayRecord({name: Array(value.detach().cpu().contiguous().numpy()) for name, value in weights.items()})


def weights_of(record: Any, name: str) -> Weights:
    """Return the model in a record; `name` is for the error message."""
    if not isinstance(record, ArrayRecord):
        raise CodecError(f"lacks the arrays {name!r}")
    return {key: _tensor(array, key) for key, array in record.items()}


def _tensor(array: Array, name: str) -> Tensor:
    try:
        return torch.from_numpy(array.numpy())
    except Exception as error:  # bytes from another machine can be wrong in many ways
        raise CodecError(f"{name!r} cannot be read ({type(error).__name__})") from None


def _vector(content: Any) -> Any:
    """Return a list of numbers as an array, anything else as it is: the codec refuses what does not fit."""
    if isinstance(content, list) and all(type(number) in (int, float) for number in content):
        return np.array(content, dtype=np.float64)
    return content
