"""Importance sampling for an existing Flower app: a strategy for its server, two calls for its client.

The server measures Lipschitz values on its public set and sends every node its class probabilities. A node sends its
class counts with its reply. Model, training loop and data of the app stay the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore import log
from torch import Tensor, nn

from isfl.errors import UserError
from isfl.federation.sampling_rules.isfl import ImportanceSampling, renew
from isfl.randomness import Purpose, generator
from isfl.sampling import ClassSampler
from isfl.smoothness import estimate_lipschitz
from isfl.theory.arrays import Array

RECORD = "isfl"
"""Name of our record in messages and replies."""


class ISFL(FedAvg):
    """FedAvg whose nodes draw their samples by class, with probabilities that minimise `rho` (Algorithm 2).

    A node receives probabilities from its second round on, when its class counts are known.

    Parameters
    ----------
    model
        The module whose state the nodes train; the server needs it to compute gradients.
    public
        The public set D_L: inputs as the model takes them, and labels.
    num_classes
        Number of classes, C.
    rule
        Floors, solver and estimator; the defaults are those of the scheme `isfl`.
    seed
        Seed of the nodes' draws.
    options
        Arguments of `FedAvg`.
    """

    def __init__(
        self,
        model: nn.Module,
        public: tuple[Tensor, Tensor],
        num_classes: int,
        *,
        rule: ImportanceSampling | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.model, self.public, self.num_classes = copy.deepcopy(model), public, num_classes
        self.rule, self.seed = rule or ImportanceSampling(), seed
        self.counts: dict[int, Array] = {}
        """Node -> (C,) class counts."""
        self.probabilities: dict[int, Array] = {}
        """Node -> (C,) sampling probabilities of its next round."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = []
        for message in super().configure_train(server_round, arrays, config, grid):
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            own = ConfigRecord({"classes": self.num_classes, "seed": self.seed, "round": server_round})
            if node in self.probabilities:
                own["probabilities"] = self.probabilities[node].tolist()
            messages.append(Message(RecordDict({**message.content, RECORD: own}), node, kind))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            self._renew(arrays, [reply for reply in replies if not reply.has_error()])
        return arrays, metrics

    def _renew(self, arrays: ArrayRecord, replies: Sequence[Message]) -> None:
        """Compute new probabilities for the nodes that replied with valid class counts."""
        models = {}
        for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
            node, counts = reply.metadata.src_node_id, self._counts_in(reply)
            if counts is None:
                log(WARNING, "ISFL: node %s sent no valid class counts; its probabilities stay the same", node)
                continue
            self.counts[node] = counts
            models[node] = self._loaded(next(iter(reply.content.array_records.values())))
        if not models:
            return
        total = np.sum(list(self.counts.values()), axis=0)
        target = total / total.sum()
        for node in models.keys() - self.probabilities.keys():
            self.probabilities[node] = self.rule.class_probabilities(self.counts[node], target)
        counts = np.stack([self.counts[node] for node in models])
        estimate = estimate_lipschitz(
            list(models.values()), self._loaded(arrays), *self.public, self.num_classes, method=self.rule.estimator
        )
        result = renew(
            self.rule,
            np.tile(target, (len(models), 1)),
            counts / counts.sum(axis=1, keepdims=True),
            np.stack([self.probabilities[node] for node in models]),
            estimate.values,
        )
        self.probabilities.update(zip(models, result.probabilities, strict=True))

    def _loaded(self, arrays: ArrayRecord) -> nn.Module:
        model = copy.deepcopy(self.model)
        model.load_state_dict(arrays.to_torch_state_dict())
        return model

    def _counts_in(self, reply: Message) -> Array | None:
        record = reply.content.get(RECORD)
        counts = record.get("counts") if isinstance(record, ConfigRecord) else None
        if not isinstance(counts, list) or len(counts) != self.num_classes:
            return None
        if not all(type(count) is int and count >= 0 for count in counts) or not any(counts):
            return None
        return np.array(counts, dtype=np.float64)


def sampler(message: Message, labels: Sequence[int] | Tensor) -> ClassSampler:
    """Return the sampler of this round for the node's `DataLoader`.

    Until the server has sent probabilities, it draws by the node's own label mix.

    Parameters
    ----------
    message
        The message of the strategy `ISFL` that the node answers.
    labels
        (N,) the class of every sample of the node.

    Returns
    -------
    ClassSampler
        It draws N samples per epoch; its draws are a function of the seed, the round and the node.

    Raises
    ------
    UserError
        If the message is not from the strategy `ISFL`.
    """
    told, y = _told(message), np.asarray(labels)
    rng = generator(_number(told, "seed"), Purpose.DRAWING, round=_number(told, "round"), client=_node(message))
    probabilities = told.get("probabilities", np.bincount(y, minlength=_number(told, "classes")) / len(y))
    return ClassSampler(y, probabilities, num_samples=len(y), seed=int(rng.integers(2**62)))


def class_counts(message: Message, labels: Sequence[int] | Tensor) -> ConfigRecord:
    """Return the record that the node puts into its reply as `"isfl"`.

    Parameters
    ----------
    message
        The message of the strategy `ISFL` that the node answers.
    labels
        (N,) the class of every sample of the node.

    Returns
    -------
    ConfigRecord
        The node's class counts.

    Raises
    ------
    UserError
        If the message is not from the strategy `ISFL`.
    """
    classes = _number(_told(message), "classes")
    return ConfigRecord({"counts": np.bincount(np.asarray(labels), minlength=classes).tolist()})


def _told(message: Message) -> ConfigRecord:
    record = message.content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise UserError("the message is not from the strategy ISFL: it has no record 'isfl'")
    return record


def _number(record: ConfigRecord, key: str) -> int:
    value = record[key]
    assert isinstance(value, int)
    return value


def _node(message: Message) -> int:
    """Return the node id as a client number of a random stream, whose key has 32 bits for it."""
    return message.metadata.dst_node_id % 2**32
