"""Flower's simulation: a ServerApp and ten ClientApps over Ray, one CPU per client, all CPUs in use."""

# Flower lives in an environment of its own, which the type checker need not see.
# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found"

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.contestants.clock import Clock
from benchmarks.contestants.work import CLIENTS, Work, from_arguments, new_model, shuffled, train_epoch


class TimedFedAvg(FedAvg):
    """Flower's own FedAvg that reports its rounds to the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        self.clock = clock

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round == 1:
            self.clock.ready()
        self.clock.begin()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        result = super().aggregate_train(server_round, replies)
        if broken := [reply.error for reply in replies if reply.has_error()]:
            raise RuntimeError(f"{len(broken)} clients failed: {broken[0]}")
        metrics = [reply.content.metric_records["metrics"] for reply in replies]
        self.clock.end(int(np.sum([m["num-examples"] for m in metrics])), float(np.mean([m["loss"] for m in metrics])))
        return result


def train(folder: Path, message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    model = new_model()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    inputs, labels = shuffled(folder, int(context.node_config["partition-id"]))
    loss = train_epoch(model, inputs, labels)
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"loss": loss, "num-examples": len(labels)}),
        }
    )
    return Message(content=content, reply_to=message)


def serve(work: Work, grid: Grid, context: Context) -> None:
    strategy = TimedFedAvg(Clock("torch", "flwr", "ray"))
    strategy.start(grid=grid, initial_arrays=ArrayRecord(new_model().state_dict()), num_rounds=work.rounds)


def main() -> None:
    work = from_arguments()
    client_app, server_app = ClientApp(), ServerApp()
    client_app.train()(partial(train, work.folder))
    server_app.main()(partial(serve, work))
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=CLIENTS,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": len(os.sched_getaffinity(0))},
        },
    )


if __name__ == "__main__":
    main()
