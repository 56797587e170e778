"""Bytes of each message between server and one client, and the server's computation per participant.

ResNet8, 10 classes, as Flower sends it: every object of a message with its header, counted in bytes.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from isfl.engines.flower.client import Evaluation
from isfl.engines.flower.wire import encode
from isfl.federation.aggregations import aggregate
from isfl.federation.evaluation import Score
from isfl.federation.preparation import prepared
from isfl.federation.scheme import Scheme
from isfl.federation.settings import Settings
from isfl.federation.values import (
    ClientProfile,
    ClientUpdate,
    RenewalReport,
    RenewTask,
    ServerMemory,
    TrainTask,
    payload_bytes,
)
from isfl.models.resnet import resnet8
from isfl.smoothness import estimate_lipschitz
from isfl.theory import sampling_probabilities

CLASSES, EPOCHS, PUBLIC = 10, 5, 500


def measure(quick: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    model = prepared(resnet8((3, 32, 32), CLASSES), Settings())
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    shares, epochs = np.full(CLASSES, 1 / CLASSES), np.ones(EPOCHS)
    update = ClientUpdate(0, 1000, weights, 1.0, 5000, 0, 1.0, 0.0)
    measured = replace(update, diagnostic_seconds=0.1, gradient_norm=epochs, gradient_variance=epochs)
    messages = {
        "who are you: answer": ClientProfile(0, 1000, np.full(CLASSES, 100.0)),
        "who are you: answer, private": ClientProfile(0, 1000, None),
        "train: task, probabilities from the server": TrainTask(1, 0, weights, shares, shares),
        "train: task, Lipschitz values from the server (private)": TrainTask(1, 0, weights, shares, lipschitz=shares),
        "train: answer": update,
        "train: answer, with what the bound needs": measured,
        "measure: task (private, L at the client)": RenewTask(1, 0, weights, shares),
        "measure: answer (private, L at the client)": RenewalReport(0, shares, 0, 1000, 1.0),
        "evaluate: task": Evaluation(0, weights),
        "evaluate: answer": Score(1000, 500, 900),
    }
    rows: list[dict[str, Any]] = [
        {"message": name, "way": "down" if "task" in name else "up", "payload in bytes": f"{payload_bytes(value):,}",
         "sent in bytes": f"{sent(encode(value)):,}"}
        for name, value in messages.items()
    ]  # fmt: skip
    return {
        "title": f"Messages to and from one client, ResNet8 ({payload_bytes(weights):,} bytes), {CLASSES} classes",
        "rows": rows,
        "notes": [
            "Every message down also carries the run's configuration (about 1 kB).",
            _server_seconds(model, update, 32 if quick else PUBLIC),
        ],
        "missed": [],
    }


def sent(records: RecordDict) -> int:
    """Return the bytes of all objects into which Flower splits the content of a message."""
    return sum(len(value.deflate()) for value in get_all_nested_objects(records).values())


def _server_seconds(model: torch.nn.Module, update: ClientUpdate, public: int) -> str:
    names = frozenset(name for name, _ in model.named_parameters())
    began = time.process_time()
    aggregate(Scheme.model_validate("isfl").aggregation, update.model, [update] * 10, ServerMemory(), names)
    averaging = (time.process_time() - began) / 10
    inputs, labels = torch.randn(public, 3, 32, 32), torch.arange(public) % CLASSES
    other = prepared(resnet8((3, 32, 32), CLASSES), Settings())
    began = time.process_time()
    values = estimate_lipschitz([other], model, inputs, labels, CLASSES).values
    measuring = (time.process_time() - began) / 2 * PUBLIC / public
    target = np.full((10_000, CLASSES), 1 / CLASSES)
    began = time.process_time()
    sampling_probabilities(target, target, np.tile(values, (10_000, 1)))
    solving = (time.process_time() - began) / 10_000
    return (
        f"The server's CPU seconds for one participant: {averaging:.4f} to average, {measuring:.1f} to measure "
        f'its Lipschitz values on {PUBLIC} public samples (none with `lipschitz_at = "client"`), {solving * 1e6:.1f} '
        "microseconds to solve for its probabilities."
    )
