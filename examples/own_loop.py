"""ISFL in your own training loop: three calls of `isfl`; everything else is plain PyTorch.

python examples/own_loop.py
"""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from isfl import ClassSampler, lipschitz, sampling_probabilities

CLASSES, CLIENTS, ROUNDS = 4, 3, 5
COUNTS = np.array([[80, 10, 6, 4], [4, 80, 10, 6], [6, 4, 10, 80]])  # samples of each class on each client


def clouds(counts: np.ndarray, seed: int) -> TensorDataset:
    """Return a toy data set: one Gaussian cloud per class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.from_numpy(np.repeat(np.arange(CLASSES), counts))
    inputs = F.one_hot(labels, 8).float() * 2 + torch.randn(len(labels), 8, generator=generator)
    return TensorDataset(inputs, labels)


def main() -> float:
    torch.manual_seed(0)
    clients = [clouds(row, seed=k) for k, row in enumerate(COUNTS)]
    public, test = clouds(np.full(CLASSES, 20), seed=10), clouds(np.full(CLASSES, 100), seed=11)
    target = COUNTS.sum(axis=0) / COUNTS.sum()
    local = COUNTS / COUNTS.sum(axis=1, keepdims=True)
    probabilities = local.copy()  # in the first round each client draws by its own mix

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    accuracy = 0.0
    for round in range(ROUNDS):
        trained = []
        for k, data in enumerate(clients):
            mine = copy.deepcopy(model)
            optimizer = torch.optim.Adam(mine.parameters(), lr=0.01)
            sampler = ClassSampler(data.tensors[1], probabilities[k], num_samples=5 * len(data), seed=100 * round + k)
            for inputs, labels in DataLoader(data, batch_size=32, sampler=sampler):
                optimizer.zero_grad()
                F.cross_entropy(mine(inputs), labels).backward()
                optimizer.step()
            trained.append(mine)
        states = [mine.state_dict() for mine in trained]
        model.load_state_dict({name: sum(s[name] for s in states) / CLIENTS for name in states[0]})
        values = lipschitz(trained, model, *public.tensors, CLASSES)  # (clients, classes)
        probabilities = sampling_probabilities(target, local, values, target_floor=0.5)
        accuracy = float((model(test.tensors[0]).argmax(1) == test.tensors[1]).float().mean())
        print(f"round {round + 1}: accuracy {accuracy:.3f}, client 0 draws {probabilities[0].round(2)}")
    return accuracy


if __name__ == "__main__":
    main()
