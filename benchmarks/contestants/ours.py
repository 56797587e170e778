"""isfl's local engine: FedAvg without evaluation, with a given number of worker processes."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from benchmarks.contestants.clock import Clock
from benchmarks.contestants.networks import network
from benchmarks.contestants.work import BATCH_SIZE, CLIENTS, LEARNING_RATE, from_arguments
from isfl.data import Dataset
from isfl.data.population import StoredPopulation
from isfl.engines import LocalEngine
from isfl.federation import Settings
from isfl.federation.aggregations import aggregate
from isfl.federation.values import ServerMemory, TrainTask
from isfl.models import resnet


def main() -> None:
    work = from_arguments()
    # An engine that cannot start its workers warns and continues with one, which must not be measured.
    warnings.simplefilter("error", UserWarning)
    settings = Settings.model_validate(
        {
            "scheme": "fedavg",
            "training": {
                "rounds": work.rounds,
                "local_epochs": 1,
                "batch_size": BATCH_SIZE,
                "optimizer": {"kind": "adam", "lr": LEARNING_RATE},
            },
        }
    )
    images, labels = (torch.from_numpy(np.load(work.folder / f"{name}.npy")) for name in ("images", "labels"))
    clients = StoredPopulation(Dataset(images, labels, 10), np.linspace(0, len(labels), CLIENTS + 1).astype(int))
    unused = clients[0].subset(np.arange(10))
    # Imported, not read from its file as for the peers: only so can it be sent to worker processes.
    model_to_train = network(work.network, resnet)
    with LocalEngine(model_to_train, clients, unused, unused, settings, workers=work.workers) as engine:
        engine.introduce()
        model, memory = engine.server.initial_model(), ServerMemory()
        target = np.full(10, 0.1)
        clock = Clock("torch")
        clock.ready()
        for number in range(1, work.rounds + 1):
            clock.begin()
            updates = engine.train([TrainTask(number, client, model, target) for client in range(CLIENTS)])
            updates = sorted(updates, key=lambda update: update.client)
            parameters = engine.server.facts.parameters
            model, memory = aggregate(settings.scheme.aggregation, model, updates, memory, parameters)
            images_seen = sum(update.training_evaluations for update in updates)
            clock.end(images_seen, float(np.mean([update.train_loss for update in updates])))


if __name__ == "__main__":  # worker processes may import this module
    main()
