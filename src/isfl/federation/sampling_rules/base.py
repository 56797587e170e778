"""What a sampling rule offers: its settings, the class probabilities it begins with, and how it draws."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from isfl.data.dataset import Dataset
from isfl.randomness import Purpose, generator
from isfl.sampling import Indices, draw_by_class
from isfl.schema import Part
from isfl.theory.arrays import Array
from isfl.theory.bias_variance import Moments


@dataclass(frozen=True)
class Stream:
    """Whose draws these are: the name of a random stream."""

    seed: int
    round: int
    client: int

    def epoch(self, number: int) -> np.random.Generator:
        """The generator for the draws of one local epoch."""
        return generator(self.seed, Purpose.DRAWING, round=self.round, client=self.client, epoch=number)


@dataclass(frozen=True)
class LocalData:
    """What a rule may look at: the model the client starts from, its data, and the probabilities in force."""

    model: nn.Module
    data: Dataset
    probabilities: Array
    """(C,) `q^k`."""
    size: int
    """Samples of an epoch."""
    epochs: int
    """Of the round."""
    stream: Stream


@dataclass(frozen=True)
class Known:
    """What a client knows when it finds its own probabilities: its data's labels, and what the server sent."""

    counts: Array
    """(C,) its own samples of each class."""
    target: Array
    """(C,) the shares it aims at."""
    round: int
    """Counted from 1."""
    rounds: int
    """Of the whole run."""
    passes: float
    """Draws of a round per local sample: the local epochs times the sampling ratio."""
    lipschitz: Array | None = None
    """(C,) its last Lipschitz values, where it solves for its own probabilities with them."""
    moments: Moments | None = None
    """Of the gradients of each class at the model the round starts from; None if unknown or not used."""


@dataclass(frozen=True)
class Draws:
    """What a client trains on in one round."""

    indices: Callable[[int], Indices]
    """From the number of an epoch to the samples it uses, in order."""
    probabilities: Array
    """(C,) how often each class is drawn."""
    evaluations: int = 0
    """Gradient evaluations that finding this took."""
    loss_weights: Tensor | None = None
    """(N,) what the loss of each local sample counts; None for 1."""


class SamplingRule(Part):
    """The base of all rules. Every importance sampling draws with replacement, classes by `q^k`."""

    names: ClassVar[dict[str, dict[str, Any]]] = {}
    """Schemes of the literature that consist of this rule: name -> its settings there."""
    from_local_model: ClassVar[bool] = False
    """Whether the probabilities follow from the client's own gradients, so that the server cannot know them."""
    keeps_counts: ClassVar[bool] = False
    """Whether clients keep their class counts to themselves wherever the target can be found without them."""
    uses_moments: ClassVar[bool] = False
    """Whether the server measures the moments of the classes' gradients before each round and sends them."""

    rule: str

    @abstractmethod
    def class_probabilities(self, counts: Array, target: Array) -> Array:
        """(C,) what a client with these class counts draws with, before anything is measured."""

    def own_probabilities(self, known: Known) -> Array:
        """(C,) what the client draws with in a round; rules that only look at counts and target need no other."""
        return self.class_probabilities(known.counts, known.target)

    def draws(self, local: LocalData) -> Draws:
        """How the client draws in this round: by class, with replacement."""
        labels = local.data.labels.numpy()

        def indices(epoch: int) -> Indices:
            return draw_by_class(labels, local.probabilities, local.size, local.stream.epoch(epoch))

        return Draws(indices, local.probabilities)
