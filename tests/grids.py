"""A Flower federation without processes: messages go through Flower's own encoding to the client app and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from isfl.engines import LocalEngine
from isfl.engines.flower.client import client_app
from isfl.engines.flower.engine import FlowerEngine
from isfl.engines.flower.messages import Connection
from isfl.engines.flower.node import Node, simulated_node
from isfl.federation import FederationState, RoundReport, run_round, start
from isfl.problem.config import Config, config_from
from isfl.problem.problem import prepare

RUN = "0123456789abcdef" * 2
TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1  # as in a process that serves a run

Meddle = Callable[[int, Message, Message], Message | None]
"""(client, message, reply) -> the reply that arrives, or None if none arrives."""


@dataclass
class Federation:
    """A grid whose nodes run in this process. `nodes` maps the number of a node to the node."""

    nodes: dict[int, Node]
    meddle: Meddle = lambda client, message, reply: reply
    wire: list[tuple[str, RecordDict]] = field(default_factory=list)
    """The content of every message, with its direction: up or down."""
    replies: dict[str, Message] = field(default_factory=dict)
    contexts: dict[int, Context] = field(default_factory=dict)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            number = f"message-{len(self.wire)}"
            message = sent(message)
            message.metadata.__dict__["_message_id"] = number
            numbers.append(number)
            self.wire.append(("down", message.content))
            node = self.nodes.get(message.metadata.dst_node_id)
            if node is not None:
                reply = self.answer(node, message)
                if reply is not None:
                    if reply.has_content():
                        self.wire.append(("up", reply.content))
                    self.replies[number] = reply
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(number) for number in message_ids if number in self.replies]

    def answer(self, node: Node, message: Message) -> Message | None:
        context = Context(1, message.metadata.dst_node_id, {}, RecordDict(), {})
        try:
            reply = client_app(lambda _: node)(message, context)
        except Exception as error:
            reply = Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message)
        result = self.meddle(node.client, message, reply)
        return None if result is None else sent(result)


def sent(message: Message) -> Message:
    """Return a message after Flower's encoding to bytes and back."""
    if message.has_error():
        return message
    content = message.content
    objects = {key: value.deflate() for key, value in get_all_nested_objects(content).items()}
    arrived = inflate_object_from_contents(content.object_id, objects)
    assert isinstance(arrived, RecordDict)
    copied = copy.copy(message)
    copied.__dict__["_content"] = arrived
    return copied


def config_of(scheme: Any = "isfl", **changes: Any) -> Config:
    """Return a small configuration: embedded images, three clients."""
    raw: dict[str, Any] = {
        "scheme": scheme,
        "data": {"public": 40},
        "split": {"kind": "mixed", "clients": 3, "shard_size": 20, "nr": 0.8},
        "model": {"name": "small-cnn", "width": 0.25},
        "training": {"rounds": 3, "local_epochs": 1, "batch_size": 16},
        "flower": {"wait_seconds": 0.5, "reply_seconds": 0.5},
    }
    for key, value in changes.items():
        raw[key] = {**raw.get(key, {}), **value} if isinstance(value, Mapping) else value
    return config_from(raw, "test")


def federation_of(state: Path, clients: int = 3, **options: Any) -> Federation:
    return Federation({1000 + k: simulated_node(k, state) for k in range(clients)}, **options)


def engine_of(config: Config, grid: Federation, state: Path | None = None, **options: Any) -> FlowerEngine:
    return FlowerEngine(prepare(config), config, Connection(grid, RUN, simulated=state, **options))


def own(tmp_path: Path, **changes: Any) -> tuple[Config, Federation]:
    """Return three clients with the samples of the split, one file each."""
    central = config_of(**{"scheme": "isfl", **changes})
    for k, data in enumerate(prepare(central).clients):
        np.savez(tmp_path / f"{k}.npz", images=data.stored().numpy(), labels=data.labels.numpy())
    config = config_of(**{"scheme": "isfl", **changes, "flower": {"own_data": True, "clients": 3}})
    return config, Federation({10 + k: Node(k, tmp_path / "state", data=str(tmp_path / f"{k}.npz")) for k in range(3)})


PRIVATE = {"name": "isfl", "sampling": {"where": "client"}}
"""The paper's private mode: Lipschitz values are measured at the server."""
MEASURED_AT_CLIENT = {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}


def secured(scheme: Any = MEASURED_AT_CLIENT, **changes: Any) -> Config:
    """Return a configuration of four clients with secure aggregation."""
    four = {"kind": "mixed", "clients": 4, "shard_size": 20, "nr": 0.8}
    return config_of(scheme, **{"target": {"kind": "uniform"}, "split": four, "secure": {}, **changes})


def rounds(config: Config, engine: Any, count: int | None = None) -> tuple[FederationState, list[RoundReport]]:
    state, reports = start(config, engine), []
    for _ in range(count or config.training.rounds):
        state, report = run_round(state, config, engine)
        reports.append(report)
    return state, reports


def run_locally(config: Config) -> tuple[FederationState, list[RoundReport]]:
    torch.set_num_threads(1)
    problem = prepare(config)
    with LocalEngine(problem.model, problem.clients, problem.public, problem.test, config) as engine:
        return rounds(config, engine)
