"""The Flower client app of isfl with injected faults, for the nodes of a deployment."""

import time

import numpy as np
from flwr.app import Array, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from isfl.experiment.flower_app import client as honest

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    return honest(message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    return honest(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    who, numbers = context.node_config["partition-id"], message.content["values"]
    assert isinstance(numbers, ConfigRecord)
    fault = {(1, 1): "nan", (1, 2): "shape", (2, 1): "key", (2, 2): "count", (3, 1): "no reply"}.get(
        (who, numbers["round"])  # type: ignore[arg-type]
    )
    if fault == "no reply":
        time.sleep(3600)
    reply = honest(message, context)
    model = reply.content.array_records["model"]
    name = next(iter(model))
    told = reply.content.config_records["values"]
    if fault == "nan":
        model[name] = Array(np.full_like(model[name].numpy(), np.nan))
    elif fault == "shape":
        model[name] = Array(np.zeros(3, dtype=np.float32))
    elif fault == "key":
        del told["train_loss"]
    elif fault == "count":
        told["num_samples"] = 10**9
    return reply
