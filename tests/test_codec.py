"""Values survive storage and transport with any fields; invalid values are refused by name."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from isfl import layout
from isfl.engines.flower import wire
from isfl.errors import UserError
from isfl.experiment import checkpoints
from isfl.experiment.checkpoints import Checkpoint, latest_checkpoint, save_checkpoint
from isfl.federation import client_state, codec, values
from isfl.federation.client_state import StoredState, recall, store
from isfl.federation.codec import CodecError, Shape, from_bytes, leaves, to_bytes
from isfl.federation.values import ClientMemory, FederationState, ServerMemory, TrainTask, Weights
from isfl.theory.arrays import Array

MADE_BY_ENGINES = (values.Refusal, values.LateAnswer)
"""In place of answers: they are neither stored nor sent."""
KINDS = [
    kind
    for kind in vars(values).values()
    if isinstance(kind, type) and is_dataclass(kind) and kind not in MADE_BY_ENGINES
]


def content_of(shape: Shape) -> Any:
    match shape:
        case Shape.MODEL:
            return {"a/b.weight": torch.arange(6.0).reshape(2, 3).T, "count": torch.tensor(3)}
        case Shape.ARRAY:
            return np.array([0.1, np.nan, 3.0])
        case Shape.INTEGER:
            return 2**53 + 1
        case Shape.FLOAT:
            return 0.1
        case Shape.TEXT:
            return "no: ünïcode"


def example(kind: type, *, optional: bool) -> Any:
    """Return a value with all optional fields, or with none of them."""
    return codec.decode(
        kind, {path: content_of(leaf.shape) for path, leaf in leaves(kind).items() if optional or not leaf.optional}
    )


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if is_dataclass(a):
        return type(a) is type(b) and all(equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_value_survives_a_file(kind: type, optional: bool) -> None:
    value = example(kind, optional=optional)
    assert equal(from_bytes(kind, to_bytes(value)), value)


@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind is not FederationState], ids=lambda kind: kind.__name__
)
def test_every_value_survives_the_wire(kind: type, optional: bool) -> None:
    value = example(kind, optional=optional)
    assert equal(wire.decode(kind, wire.encode(value)), value)


def test_an_empty_model_is_not_decoded_as_none() -> None:
    models: list[Weights | None] = [None, {}]
    for model in models:
        assert from_bytes(ClientMemory, to_bytes(ClientMemory(local_model=model))).local_model == model


def test_two_names_of_one_parameter_and_numpy_numbers_are_stored() -> None:
    shared = torch.ones(3)
    task = TrainTask(np.int64(1), 0, {"a": shared, "b": shared}, np.ones(2))  # type: ignore[arg-type]
    found = from_bytes(TrainTask, to_bytes(task))
    assert type(found.round) is int and found.model.keys() == {"a", "b"}


# ---------------------------------------------------------------- a new field needs no code


@dataclass(frozen=True)
class Momentum:
    steps: int = 0
    buffer: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class LargerMemory(ClientMemory):
    momentum: Momentum = field(default_factory=Momentum)
    note: str | None = None


@dataclass(frozen=True)
class LargerState(FederationState):
    control: Weights | None = None
    temperature: float = 1.0


@dataclass(frozen=True)
class LargerTask(TrainTask):
    control: Weights | None = None
    temperature: float = 1.0
    mask: Array | None = None


MEMORY = LargerMemory(
    statistics={"mean": torch.ones(2)},
    probabilities=np.array([0.25, 0.75]),
    momentum=Momentum(7, {"weight": torch.full((2,), 3.0)}),
    note="kept",
)


def larger_state(round: int = 3) -> LargerState:
    return LargerState(
        round,
        {"weight": torch.ones(2)},
        9,
        np.array([3, 7]),
        np.ones((2, 2)),
        np.array([5, 6]),
        np.array([1, 2]),
        None,
        None,
        server=ServerMemory({"weight": torch.zeros(2)}),
        control={"weight": torch.arange(2.0)},
        temperature=0.5,
    )


def test_a_new_field_of_a_memory_needs_no_code_in_client_files_and_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (client_state, checkpoints):
        monkeypatch.setattr(module, "ClientMemory", LargerMemory)
    monkeypatch.setattr(checkpoints, "FederationState", LargerState)
    stored = store(tmp_path / layout.CLIENTS, 4, 3, MEMORY)
    assert isinstance(stored.small, LargerMemory) and stored.small.momentum == Momentum(7)
    save_checkpoint(tmp_path, Checkpoint(larger_state(), {4: stored, 9: StoredState(LargerMemory())}, {}, "config"))
    found = latest_checkpoint(tmp_path)
    assert found is not None and equal(found.state, larger_state())
    assert equal(recall(tmp_path / layout.CLIENTS, found.client_states[4]), MEMORY)


def test_a_new_field_of_a_task_needs_no_code_on_the_wire() -> None:
    task = LargerTask(1, 0, {"weight": torch.ones(2)}, np.ones(2), control={"c": torch.ones(1)}, mask=np.zeros(2))
    assert equal(wire.decode(LargerTask, wire.encode(task)), task)
    assert wire.decode(LargerTask, wire.encode(LargerTask(1, 0, {}, np.ones(2)))).control is None


# ---------------------------------------------------------------- refusals

MODEL = {"weight": torch.ones(2)}


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"client": 0, "model": MODEL, "target": np.ones(2)}, "lacks 'round'"),
        ({"round": 1, "client": 0, "target": np.ones(2)}, "lacks 'model'"),
        ({"round": 1.0, "client": 0, "model": MODEL, "target": np.ones(2)}, "'round' is float, not a whole number"),
        ({"round": True, "client": 0, "model": MODEL, "target": np.ones(2)}, "'round' is bool, not a whole number"),
        ({"round": 1, "client": 0, "model": MODEL, "target": 3}, "'target' is int, not an array"),
        ({"round": 1, "client": 0, "model": np.ones(2), "target": np.ones(2)}, "'model' is ndarray, not a model"),
        ({"round": 1, "client": 0, "model": MODEL, "target": np.ones(2), "wish": 1}, "has 'wish', which is no part"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(parts: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CodecError, match=complaint):
        codec.decode(TrainTask, parts)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"round": torch.ones(2)}, "'round' is an array of torch.float32, not a whole number"),
        ({"round": torch.tensor(1.5)}, "'round' is float, not a whole number"),
        ({"model": torch.ones(2)}, "'model' is ndarray, not a model"),
        ({"wish/weight": torch.ones(2)}, "has 'wish'"),
        ({"target/": torch.ones(0)}, "'target' is both"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(changes: dict[str, Tensor], complaint: str) -> None:
    flat = codec.to_tensors(codec.encode(TrainTask(1, 0, MODEL, np.ones(2))))
    with pytest.raises(CodecError, match=complaint):
        codec.from_tensors(TrainTask, {**flat, **changes})


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("values", ConfigRecord({"round": 1, "client": 0}), "lacks 'target'"),
        ("values", ConfigRecord({"round": 1, "client": 0, "target": [1.0], "model": 3}), None),
        ("values", ConfigRecord({"round": b"1", "client": 0, "target": [1.0]}), "'round' is bytes"),
        ("values", ConfigRecord({"round": 1, "client": 0, "target": [True]}), "'target' is list, not an array"),
        ("values", ArrayRecord(), "lacks the record 'values'"),
        ("model", ConfigRecord(), "lacks the arrays 'model'"),
    ],
)
def test_hostile_records_are_refused_by_name(name: str, content: Any, complaint: str | None) -> None:
    records = wire.encode(TrainTask(1, 0, MODEL, np.ones(2)))
    records = RecordDict({key: value for key, value in records.items() if key != name} | {name: content})
    if complaint is None:
        assert equal(wire.decode(TrainTask, records).model, MODEL), "a number cannot replace a model"
        return
    with pytest.raises(CodecError, match=complaint):
        wire.decode(TrainTask, records)


def test_a_field_that_cannot_be_encoded_is_a_type_error() -> None:
    @dataclass(frozen=True)
    class Wrong:
        anything: object

    with pytest.raises(TypeError, match=r"Wrong.anything: .* can neither be stored nor sent"):
        codec.encode(Wrong(1))


def test_checkpoints_of_another_format_are_refused_and_kept(tmp_path: Path) -> None:
    state = FederationState(1, MODEL, 1, np.array([0]), np.ones((1, 2)), np.array([5]), np.array([1]), None, None)
    save_checkpoint(tmp_path, Checkpoint(state, {}, {}, "config"))
    (file,) = (tmp_path / layout.CHECKPOINTS).glob("*.json")
    described = {key: value for key, value in json.loads(file.read_text()).items() if key != "sha256"} | {"format": 3}
    content = file.with_suffix(".safetensors").read_bytes()
    file.write_text(json.dumps(described | {"sha256": checkpoints._digest(described, content)}))
    with pytest.raises(UserError, match="checkpoints have format 3, this version of isfl resumes format 5"):
        latest_checkpoint(tmp_path)
    assert file.exists()
