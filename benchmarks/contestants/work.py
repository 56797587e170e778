"""The work that is compared: the data of a client, the model, one epoch of plain PyTorch.

Needs torch and NumPy only, so that it runs in the peers' environments too.
"""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.contestants.networks import network

CLIENTS = 10
BATCH_SIZE = 128
LEARNING_RATE = 1e-3
MODEL = Path(__file__).parents[2] / "src/isfl/models/resnet.py"


@dataclass(frozen=True)
class Work:
    folder: Path
    """Where the harness put `images.npy` and `labels.npy`, client after client."""
    rounds: int
    """Including the warm-up round."""
    workers: int
    network: str


def from_arguments() -> Work:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--network", default="resnet8")
    return Work(**vars(parser.parse_args()))


def arrays_of(folder: Path, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a client's images (bytes) and labels, memory-mapped: a process loads only the clients it trains."""
    images = np.load(folder / "images.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy", mmap_mode="r")
    size = len(labels) // CLIENTS
    own = slice(client * size, (client + 1) * size)
    return images[own], labels[own]


def shuffled(folder: Path, client: int) -> tuple[Tensor, Tensor]:
    """Return a client's data for one epoch: in a new order, images scaled to [-1, 1]; tokens as they are."""
    inputs, labels = arrays_of(folder, client)
    order = torch.randperm(len(labels)).numpy()
    chosen = torch.from_numpy(inputs[order])
    return chosen.float() / 127.5 - 1.0 if chosen.dtype == torch.uint8 else chosen, torch.from_numpy(labels[order])


def new_model(name: str = "resnet8") -> nn.Module:
    """Return a network; isfl's are loaded from their file: the package needs libraries that peers do not have."""
    spec = importlib.util.spec_from_file_location("resnet", MODEL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return network(name, module)


def train_epoch(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Train one local epoch with a new optimiser; return the mean loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    model.train()
    total = 0.0
    for batch_inputs, batch_labels in zip(
        torch.split(inputs, BATCH_SIZE), torch.split(labels, BATCH_SIZE), strict=True
    ):
        loss = F.cross_entropy(model(batch_inputs), batch_labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.item() * len(batch_labels)
    return total / len(labels)
