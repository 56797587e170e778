"""A loop without a framework: one process, two threads, clients one after the other."""

from __future__ import annotations

import torch

from benchmarks.contestants.clock import Clock
from benchmarks.contestants.work import CLIENTS, from_arguments, new_model, shuffled, train_epoch


def main() -> None:
    work = from_arguments()
    torch.set_num_threads(2)
    model = new_model(work.network)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    clock = Clock("torch")
    clock.ready()
    for _ in range(work.rounds):
        clock.begin()
        results, losses, images = [], [], 0
        for client in range(CLIENTS):
            inputs, labels = shuffled(work.folder, client)
            model.load_state_dict(weights)
            losses.append(train_epoch(model, inputs, labels))
            results.append({name: value.clone() for name, value in model.state_dict().items()})
            images += len(labels)
        weights = {
            name: torch.stack([result[name].double() for result in results]).mean(dim=0).to(value.dtype)
            for name, value in weights.items()
        }
        clock.end(images, sum(losses) / len(losses))


if __name__ == "__main__":
    main()
