"""What a simulated attack offers: which clients are hostile, how they train, and what they send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field
from torch import Tensor

from isfl.data.dataset import Dataset
from isfl.federation.values import ClientUpdate, Weights
from isfl.randomness import Purpose, generator
from isfl.schema import Part


class Attack(Part):
    """The base of all attacks: nobody is hostile."""

    kind: str

    def is_hostile(self, seed: int, client: int) -> bool:
        """Return whether this client is hostile, a function of the seed and the client alone."""
        return False

    def hostile_among(self, seed: int, clients: int) -> int:
        """Return how many of the first `clients` clients are hostile."""
        return sum(self.is_hostile(seed, client) for client in range(clients))

    def poisoned(self, data: Dataset) -> Dataset:
        """Return what a hostile client trains on; it draws and announces classes by its true labels."""
        return data

    def crafted(
        self,
        hostile: Sequence[ClientUpdate],
        honest: Sequence[ClientUpdate],
        current: Weights,
        parameters: frozenset[str],
    ) -> Sequence[ClientUpdate]:
        """Return what the hostile clients send instead of their updates.

        They confer: they know the updates of all clients in the round. `current` is the global model that everyone
        started from, `parameters` are the names of its trainable values. Everything else looks as it does at an honest
        client.
        """
        return hostile


class HostileShare(Attack):
    """The base of attacks by a share of the clients."""

    share: float = Field(0.2, gt=0, lt=1, description="share of the clients that are hostile; the seed decides which")

    def is_hostile(self, seed: int, client: int) -> bool:
        """Return whether the client is in a systematic sample: every 1/share-th client from a random start.

        Of any K consecutive clients, `share K` are hostile, rounded up or down, and nobody has to know K.
        """
        start = generator(seed, Purpose.HOSTILE_CLIENTS).random()
        return bool(np.floor(start + (client + 1) * self.share) > np.floor(start + client * self.share))

    def hostile_among(self, seed: int, clients: int) -> int:
        start = generator(seed, Purpose.HOSTILE_CLIENTS).random()
        return int(np.floor(start + clients * self.share) - np.floor(start))


def moved(update: ClientUpdate, current: Weights, parameters: frozenset[str], factor: float) -> ClientUpdate:
    """Return the update with `theta + factor (theta^k - theta)` as its trainable values."""
    return replace(update, model=update.model | {n: _moved(current[n], update.model[n], factor) for n in parameters})


def _moved(start: Tensor, end: Tensor, factor: float) -> Tensor:
    return start + factor * (end - start)
