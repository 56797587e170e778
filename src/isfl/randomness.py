"""Randomness as a function of (seed, purpose, round, client, epoch), never of the order of calls.

Hence one worker equals many, an interrupted run equals an uninterrupted one, and nothing random has to be stored.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """What a stream of random numbers is for. Values are part of every result: never renumber them."""

    SPLIT = 1
    PUBLIC_SET = 2
    INITIAL_MODEL = 3
    PARTICIPATION = 4
    DRAWING = 5
    DROPOUT = 6
    COUNT_NOISE = 7
    FEATURE_NOISE = 8
    EVALUATION = 9
    AUGMENTATION = 10
    GLOBAL_GENERATORS = 11
    PRIVACY_NOISE = 12
    HOSTILE_CLIENTS = 13


def generator(seed: int, purpose: Purpose, *, round: int = 0, client: int = 0, epoch: int = 0) -> np.random.Generator:
    """A numpy generator of its own for this purpose, round, client and epoch."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, round, client, epoch)))


def torch_generator(seed: int, purpose: Purpose, *, round: int = 0, client: int = 0, epoch: int = 0) -> torch.Generator:
    """The same for torch."""
    stream = generator(seed, purpose, round=round, client=client, epoch=epoch)
    return torch.Generator().manual_seed(int(stream.integers(2**62)))


@contextmanager
def torch_randomness(seed: int, purpose: Purpose, *, round: int = 0, client: int = 0) -> Iterator[None]:
    """The same for code that takes torch's global generator and no other (dropout, initialisers); restored after."""
    stream = generator(seed, purpose, round=round, client=client)
    with torch.random.fork_rng():
        torch.manual_seed(int(stream.integers(2**62)))
        yield


@contextmanager
def global_randomness(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python, for code of the user that takes them; restored after."""
    of_numpy, of_python = np.random.get_state(), random.getstate()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(of_numpy)  # noqa: NPY002
            random.setstate(of_python)
