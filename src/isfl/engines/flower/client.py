"""The client app: reads Flower messages, calls the functions of `isfl.federation` and replies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from safetensors.torch import load, save
from torch import nn

from isfl.data.dataset import Dataset
from isfl.data.held import load_held
from isfl.data.normalize import normalized
from isfl.data.own import only_code
from isfl.data.transforms import check_transforms
from isfl.engines.flower.node import (
    Node,
    count_noised_update,
    exclusive_memory,
    memory_folder,
    node_of,
    recall,
    remember,
    told_first,
)
from isfl.engines.flower.wire import arrays_of, decode, encode, weights_of
from isfl.engines.threads import one_thread
from isfl.errors import UserError
from isfl.federation.client import introduce, renew_at_client, train_client
from isfl.federation.codec import CodecError
from isfl.federation.evaluation import outcomes, score
from isfl.federation.preparation import prepared
from isfl.federation.secure.client import answer_phase
from isfl.federation.secure.tables import Phase
from isfl.federation.values import RenewTask, RoundSecret, SecureTask, TrainTask, Weights
from isfl.files import write_whole
from isfl.models import build_model
from isfl.problem.config import Config, config_from
from isfl.problem.problem import Problem, prepare
from isfl.randomness import Purpose, SystemNoise, generator

HEAD = "isfl"
"""The record that every message has: the run and its configuration."""
PROBLEM = "problem"
"""The record of a reply with an error instead of a result."""


@dataclass(frozen=True)
class Evaluation:
    """Server to client: evaluate this model on your data."""

    client: int
    model: Weights


@dataclass(frozen=True)
class Call:
    """A message at a client: the node, the run, and its configuration."""

    node: Node
    run: str
    config: Config


@dataclass(frozen=True)
class Visit(Call):
    """With the model and the data to use."""

    model: nn.Module
    data: Dataset
    public: Dataset | None


def client_app(node: Callable[[Context], Node] = lambda context: node_of(context.node_config)) -> ClientApp:
    """Return an app that serves any run; `node` returns the client's node from Flower's context."""
    app = ClientApp()

    def answer(message: Message, context: Context, work: Callable[[Node, RecordDict], RecordDict]) -> Message:
        try:
            served = node(context)
            with one_thread(), only_code(served.allow_code):
                reply = work(served, message.content)
        except (UserError, CodecError) as error:
            reply = RecordDict({PROBLEM: ConfigRecord({"reason": str(error)})})
        except RuntimeError as error:
            if "loading state_dict" not in str(error):
                raise
            details = str(error).splitlines()[-1].strip()
            reply = RecordDict({PROBLEM: ConfigRecord({"reason": f"the model in the message does not fit: {details}"})})
        return Message(reply, reply_to=message)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return answer(message, context, lambda node, records: _introduce(_visit(node, records), records))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return answer(message, context, lambda node, records: _train(_visit(node, records), records))

    @app.train("renew")
    def renew(message: Message, context: Context) -> Message:
        return answer(message, context, lambda node, records: _renew(_visit(node, records), records))

    @app.train("secure")
    def secure(message: Message, context: Context) -> Message:
        return answer(message, context, lambda node, records: _secure(_call(node, records), records))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return answer(message, context, lambda node, records: _evaluate(_visit(node, records), records))

    return app


def _introduce(visit: Visit, records: RecordDict) -> RecordDict:
    node, config, data = visit.node, visit.config, visit.data
    epsilon = config.target.count_epsilon
    if node.private and epsilon is not None:
        if node.max_epsilon is None or epsilon > node.max_epsilon:
            raise UserError(f"its operator allows noised counts up to max-epsilon = {node.max_epsilon}")
    elif node.private and not config.hides_counts:
        raise UserError("its operator keeps class counts private: use where = 'client'")
    noise = generator(config.seed, Purpose.COUNT_NOISE, client=node.client)
    profile = introduce(node.client, data, config, noise if node.simulated else SystemNoise())
    if epsilon is not None and not node.simulated and profile.class_counts is not None:
        told = told_first(node, data.class_counts, profile.class_counts)
        profile = replace(profile, class_counts=told)
    if "public" in records:
        _keep_public(memory_folder(node, visit.run, make=True), records)
    return encode(profile)


def _train(visit: Visit, records: RecordDict) -> RecordDict:
    task = decode(TrainTask, records)
    _check_addressee(visit, task.client)
    with exclusive_memory(visit.node, visit.run):
        # With `secure`, the secret of this round has begun its memory.
        memory = recall(visit.node, visit.run, task.round - (visit.config.secure is None))
        real, privacy = not visit.node.simulated, visit.config.privacy
        if real and privacy is not None and privacy.at == "client":
            count_noised_update(visit.node, privacy.noise)
        update, memory = train_client(visit.model, task, visit.data, visit.config, memory, real=real)
        remember(visit.node, visit.run, task.round, memory)
        return encode(update)


def _renew(visit: Visit, records: RecordDict) -> RecordDict:
    task = decode(RenewTask, records)
    _check_addressee(visit, task.client)
    with exclusive_memory(visit.node, visit.run):
        memory = recall(visit.node, visit.run, task.round)
        if memory.probabilities is None or visit.public is None:
            raise UserError("has not trained in this run, or has not been given the public set")
        report, memory = renew_at_client(visit.model, task, visit.data, visit.public, visit.config, memory)
        remember(visit.node, visit.run, task.round, memory)
        return encode(report)


def _secure(call: Call, records: RecordDict) -> RecordDict:
    """Answer one phase of secure aggregation; the secret of a round belongs to the memory of that round.

    A new round removes the secret of the last one, which is there if the client was not asked in its last phase.
    """
    task = decode(SecureTask, records)
    _check_addressee(call, task.client)
    begins = task.phase == Phase.KEYS
    with exclusive_memory(call.node, call.run):
        memory = recall(call.node, call.run, task.round - begins)
        if begins and (last := memory.secret.round) is not None:
            remember(call.node, call.run, last, replace(memory, secret=RoundSecret()))
        answer, memory = answer_phase(task, call.config, memory, real=not call.node.simulated)
        remember(call.node, call.run, task.round, memory)
        return encode(answer)


def _evaluate(visit: Visit, records: RecordDict) -> RecordDict:
    task = decode(Evaluation, records)
    _check_addressee(visit, task.client)
    if not visit.node.simulated and (visit.node.private or visit.config.hides_counts):
        raise UserError("does not evaluate: the accuracy of a model that always predicts one class reveals its count")
    visit.model.load_state_dict(task.model)
    return encode(score(outcomes(visit.model, visit.data)))


def _check_addressee(call: Call, client: int) -> None:
    if client != call.node.client:
        raise UserError(f"client {call.node.client} received a task for client {client}")


def _call(node: Node, records: RecordDict) -> Call:
    head = _head(records)
    config = _config(str(head["config"]))
    if node.secure and config.secure is None:
        raise UserError("its operator sends masked updates only: the run needs the table [secure]")
    if node.max_update_epsilon is not None and not config.protects_at_client:
        raise UserError("its operator sends noised updates only: the run needs privacy.at = 'client'")
    return Call(node, str(head["run"]), config)


def _head(records: RecordDict) -> ConfigRecord:
    head = records.get(HEAD)
    if not isinstance(head, ConfigRecord) or not {"config", "run", "classes", "shape"} <= head.keys():
        raise CodecError(f"the message lacks the record {HEAD!r}")
    return head


def _visit(node: Node, records: RecordDict) -> Visit:
    head, call = _head(records), _call(node, records)
    run, text, config = call.run, str(head["config"]), call.config
    if config.flower.own_data:
        if node.data is None:
            raise UserError("the run needs clients with their own data; name yours in the node configuration (data)")
        names, shape = [str(name) for name in _list(head["classes"])], [int(size) for size in _list(head["shape"])]
        data = _held(node.data, tuple(names), tuple(shape), text)
        model = prepared(build_model(config.model, tuple(shape), len(names), config.seed), config)
        public = _kept_public(node, run, len(names))
        public = None if public is None else normalized(public, config.data.normalize)
        return Visit(node, run, config, model, data, public)
    if node.data is not None:
        raise UserError("this node has its own data; the run needs flower.own_data = true")
    problem, model = _problem(text)
    if node.client >= len(problem.clients):
        raise UserError(f"partition-id is {node.client}, but the split has {len(problem.clients)} clients")
    return Visit(node, run, config, model, problem.clients[node.client], problem.public)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise CodecError(f"the record {HEAD!r} has a {type(value).__name__} where a list should be")
    return value


@lru_cache(maxsize=1)
def _config(text: str) -> Config:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise CodecError("the configuration in the message is not JSON") from None
    return config_from(raw, "the server's configuration")


@lru_cache(maxsize=1)
def _problem(text: str) -> tuple[Problem, nn.Module]:
    """Return data, split and model of a run; cached, because the process may serve many of its messages."""
    config = _config(text)
    problem = prepare(config)
    return problem, prepared(problem.model, config)


@lru_cache(maxsize=1)
def _held(reference: str, classes: tuple[str, ...], shape: tuple[int, ...], text: str) -> Dataset:
    config = _config(text)
    data = normalized(load_held(reference, classes, shape), config.data.normalize)
    check_transforms(config.training.augment, data.stored(slice(2)))
    return data


def _keep_public(folder: Path, records: RecordDict) -> None:
    write_whole(folder / "public.safetensors", save(weights_of(records["public"], "public")))


def _kept_public(node: Node, run: str, classes: int) -> Dataset | None:
    file = memory_folder(node, run) / "public.safetensors"
    if not file.exists():
        return None
    arrays = load(file.read_bytes())
    return Dataset(arrays["inputs"], arrays["labels"], classes)


def public_record(public: Dataset) -> ArrayRecord:
    """Return the public set as a record, for clients that do not have it."""
    return arrays_of({"inputs": public.stored(), "labels": public.labels})
