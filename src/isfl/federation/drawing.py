"""How a client draws its samples: sampling rules as probabilities over classes or over samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isfl.federation.scheme import ImportanceSampling, Sampling, Shuffle, TargetShares, Tempered, UniformClasses
from isfl.randomness import Purpose, generator
from isfl.sampling import Indices, draw_by_class
from isfl.theory.arrays import Array


@dataclass(frozen=True)
class Stream:
    """Whose draws these are: the name of a random stream."""

    seed: int
    round: int
    client: int


def class_probabilities(rule: Sampling, counts: Array, target: Array) -> Array:
    """(C,) the probabilities of rules that need nothing but the client's class counts and the target.

    Rules that learn from models (ISFL, gradient norms) start from here too: with weights of 1, the local mix,
    or, if ISFL is told so, with the target.
    """
    held = counts > 0
    if isinstance(rule, UniformClasses):
        return held / held.sum()
    if isinstance(rule, Tempered):
        weights = np.where(held, np.where(held, counts, 1.0) ** (1.0 - rule.temperature), 0.0)
        return weights / weights.sum()
    if isinstance(rule, TargetShares) and not rule.normalised:
        weights = counts * target
        return weights / weights.sum() if weights.sum() > 0 else counts / counts.sum()
    if isinstance(rule, TargetShares) or (isinstance(rule, ImportanceSampling) and rule.first_round == "target"):
        wanted = np.where(held, target, 0.0)
        return wanted / wanted.sum() if wanted.sum() > 0 else held / held.sum()
    return counts / counts.sum()


def epoch_size(num_samples: int, sampling_ratio: float) -> int:
    """`floor(SR * |D_k|)`, at least one sample."""
    return max(1, int(np.floor(sampling_ratio * num_samples)))


def epochs_by_class(
    rule: Sampling, labels: np.ndarray, probabilities: Array, size: int, stream: Stream
) -> Callable[[int], Indices]:
    """Epoch -> indices. FedAvg shuffles without replacement; every importance sampling draws with replacement."""

    def draw(epoch: int) -> Indices:
        rng = _generator(stream, epoch)
        if isinstance(rule, Shuffle):
            return rng.permutation(len(labels))[:size]
        return draw_by_class(labels, probabilities, size, rng)

    return draw


def epochs_by_sample(shares: Array, size: int, stream: Stream) -> Callable[[int], Indices]:
    """Epoch -> indices, each sample with the given probability (ISFedAvg)."""

    def draw(epoch: int) -> Indices:
        return _generator(stream, epoch).choice(len(shares), size=size, p=shares)

    return draw


def _generator(stream: Stream, epoch: int) -> np.random.Generator:
    return generator(stream.seed, Purpose.DRAWING, round=stream.round, client=stream.client, epoch=epoch)
