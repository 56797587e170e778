"""Randomness as a function of (seed, purpose, round, client, epoch), never of the order of calls.

Hence one worker equals many, an interrupted run equals an uninterrupted one, and nothing random has to be stored.
`SystemNoise` is the exception: noise that protects the data of real clients must not be repeatable.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Protocol

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
    LATENCY = 14
    SECURE_AGGREGATION = 15


def generator(seed: int, purpose: Purpose, *, round: int = 0, client: int = 0, epoch: int = 0) -> np.random.Generator:
    """A numpy generator of its own for this purpose, round, client and epoch."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, round, client, epoch)))


class Noise(Protocol):
    """Where noise that protects data comes from: a `numpy.random.Generator`, or the system."""

    def standard_normal(self, size: int | tuple[int, ...]) -> np.ndarray: ...
    def laplace(self, *, scale: float, size: int) -> np.ndarray: ...


class SystemNoise:
    """Noise from the operating system's entropy, for real clients.

    NumPy's generators do not withstand attacks: an attacker who sees enough of their numbers, for instance the noise of
    parameters that did not move, can compute the others.
    """

    def standard_normal(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Return Gaussian noise, by the method of Box and Muller (Annals of Mathematical Statistics 29, 1958)."""
        count = math.prod(size) if isinstance(size, tuple) else size
        radius, angle = np.sqrt(-2 * np.log(_uniform(count))), 2 * np.pi * _uniform(count)
        return (radius * np.cos(angle)).reshape(size)

    def laplace(self, *, scale: float, size: int) -> np.ndarray:
        """Return Laplace noise, the difference of two exponential variables."""
        return scale * np.log(_uniform(size) / _uniform(size))


def _uniform(count: int) -> np.ndarray:
    """Return numbers strictly between 0 and 1."""
    return ((np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(12)) + 0.5) * 2.0**-52


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
