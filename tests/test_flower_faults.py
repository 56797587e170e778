"""No Flower node is trusted: an invalid reply is refused by name, and the round continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from isfl.engines.flower.wire import NUMBERS, decode, encode
from isfl.errors import UserError
from isfl.federation import run_round, start
from isfl.federation.codec import CodecError
from isfl.federation.values import ClientProfile
from tests.grids import MEASURED_AT_CLIENT, config_of, engine_of, federation_of, rounds


def spoiled(reply: Message, **numbers: Any) -> Message:
    for name, value in numbers.items():
        if value is None:
            del reply.content[NUMBERS][name]
        else:
            reply.content[NUMBERS][name] = value
    return reply


def _nan(reply: Message) -> Message:
    model = reply.content["model"]
    assert isinstance(model, ArrayRecord)
    name = next(iter(model))
    model[name] = Array(np.full_like(model[name].numpy(), np.nan))
    return reply


def _shape(reply: Message) -> Message:
    model = reply.content["model"]
    assert isinstance(model, ArrayRecord)
    name = next(iter(model))
    model[name] = Array(np.zeros(3, dtype=np.float32))
    return reply


def _pickle(reply: Message) -> Message:
    model = reply.content["model"]
    assert isinstance(model, ArrayRecord)
    name = next(iter(model))
    model[name] = Array("float32", (1,), "numpy.ndarray", b"\x93NUMPY" + b"\x80\x04cos\nsystem\n")
    return reply


def _no_model(reply: Message) -> Message:
    del reply.content["model"]
    return reply


FAULTS: dict[str, tuple[Any, str]] = {
    "nan": (_nan, "is not finite"),
    "shape": (_shape, "has shape (3,) instead of"),
    "pickle": (_pickle, "cannot be read"),
    "model": (_no_model, "lacks the arrays 'model'"),
    "nothing": (lambda reply: spoiled(reply, **dict.fromkeys(reply.content[NUMBERS].keys())), "lacks"),
    "key": (lambda reply: spoiled(reply, train_loss=None), "reports a training loss of None"),
    "type": (lambda reply: spoiled(reply, train_loss="low"), "'train_loss' is str"),
    "count": (lambda reply: spoiled(reply, num_samples=10**9), "claims 1000000000 samples where it announced"),
    "other": (lambda reply: spoiled(reply, client=2), "answered as client 2"),
    "norms": (lambda reply: spoiled(reply, gradient_norm=[-1.0]), "gradient norms"),
    "cost": (lambda reply: spoiled(reply, training_seconds=float("nan")), "reports costs that cannot be"),
    "loss": (lambda reply: spoiled(reply, train_loss=1e308), "reports a training loss of 1e+308"),
    "no reply": (lambda reply: None, "did not answer within"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_with_an_invalid_reply_is_refused_by_name_and_can_return(fault: str, tmp_path: Path) -> None:
    spoil, reason = FAULTS[fault]
    config = config_of("isfl")
    state: list[int] = []

    def meddle(client: int, message: Message, reply: Message) -> Message | None:
        if client == 1 and message.metadata.message_type == "train" and not state:
            state.append(1)
            result: Message | None = spoil(reply)
            return result
        return reply

    engine = engine_of(config, federation_of(tmp_path, meddle=meddle))
    _, reports = rounds(config, engine)
    assert list(reports[0].refused) == [1] and reason in reports[0].refused[1]
    assert reports[0].train_loss is not None
    assert reports[1].refused == {} == reports[2].refused


def test_an_app_that_crashes_is_refused_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*arguments: Any, **options: Any) -> Any:
        raise MemoryError("no room")

    config = config_of("fedavg", training={"rounds": 1})
    engine = engine_of(config, federation_of(tmp_path))
    state = start(config, engine)
    monkeypatch.setattr("isfl.engines.flower.client.train_client", crash)
    state, report = run_round(state, config, engine)
    assert report.refused == dict.fromkeys(range(3), "failed: MemoryError: no room")


def test_impossible_scores_are_not_counted(tmp_path: Path) -> None:
    def meddle(client: int, message: Message, reply: Message) -> Message:
        if client == 1 and message.metadata.message_type == "evaluate":
            return spoiled(reply, correct=10**6, correct_top5=10**6)
        return reply

    config, said = config_of("fedavg", training={"rounds": 1}), list[str]()
    _, reports = rounds(config, engine_of(config, federation_of(tmp_path, meddle=meddle), tell=said.append))
    assert reports[0].clients.keys() == {0, 2}
    assert said == ["evaluation: client 1: has impossible scores"]


def test_a_renewal_that_fails_is_named_and_the_client_keeps_its_probabilities(tmp_path: Path) -> None:
    def meddle(client: int, message: Message, reply: Message) -> Message | None:
        return None if client == 1 and message.metadata.message_type == "train.renew" else reply

    config = config_of(MEASURED_AT_CLIENT, target={"kind": "uniform"}, training={"rounds": 1})
    _, reports = rounds(config, engine_of(config, federation_of(tmp_path, meddle=meddle), tmp_path))
    assert list(reports[0].refused) == [1] and reports[0].refused[1].startswith("renewal: did not answer")
    assert reports[0].train_loss is not None


def test_a_client_without_the_required_counts_ends_the_run_with_an_error(tmp_path: Path) -> None:
    def meddle(client: int, message: Message, reply: Message) -> Message:
        return spoiled(reply, class_counts=None) if client == 1 else reply

    config = config_of("isfl")
    with pytest.raises(UserError, match="client 1 does not tell its class counts"):
        start(config, engine_of(config, federation_of(tmp_path, meddle=meddle)))


def test_wrong_values_are_refused_by_name() -> None:
    with pytest.raises(CodecError, match="lacks the record"):
        decode(ClientProfile, RecordDict())
    profile = encode(ClientProfile(0, 5, np.array([2.0, 3.0])))
    json.dumps(dict(profile[NUMBERS]))  # numbers only
    profile[NUMBERS] = ConfigRecord({"client": 0, "num_samples": 5, "class_counts": ["two"]})
    with pytest.raises(CodecError, match="'class_counts' is list"):
        decode(ClientProfile, profile)
