"""Drawing samples by class: a sampler for anybody's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Sampler

from isfl.theory.arrays import first, shares

Indices = npt.NDArray[np.int64]


def draw_by_class(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, count: int, generator: np.random.Generator
) -> Indices:
    """`count` indices into `labels`: a class by `q`, then one of its samples uniformly, with replacement."""
    y, q = _checked(labels, probabilities)
    per_class = np.bincount(y, minlength=len(q))
    order = np.argsort(y, kind="stable")
    start = np.concatenate([[0], np.cumsum(per_class)[:-1]])
    classes = generator.choice(len(q), size=count, p=q)
    return order[start[classes] + (generator.random(count) * per_class[classes]).astype(np.int64)]


def _checked(
    labels: npt.ArrayLike | torch.Tensor, probabilities: npt.ArrayLike
) -> tuple[Indices, npt.NDArray[np.float64]]:
    y = np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"labels must be a vector of whole numbers, found {y.dtype} of shape {y.shape}")
    if np.ndim(probabilities) != 1:
        raise ValueError(f"probabilities must have shape (C,), one client's, found {np.shape(probabilities)}")
    y, q = y.astype(np.int64), shares("probabilities", probabilities)[0]
    bad = (y < 0) | (y >= len(q))
    if bad.any():
        raise ValueError(f"labels{first(bad)} is {y[bad][0]}: there are probabilities for classes 0 .. {len(q) - 1}")
    lacking = (np.bincount(y, minlength=len(q)) == 0) & (q > 0)
    if lacking.any():
        raise ValueError(
            f"probabilities{first(lacking)} is {q[lacking][0]:g}: there is no sample of that class to draw"
        )
    q.flags.writeable = False
    return y, q


class ClassSampler(Sampler[int]):
    """Draws classes with given probabilities, and samples uniformly inside a class, with replacement.

    Parameters
    ----------
    labels
        (N,) the class of every sample of the data set.
    probabilities
        (C,) `q`, zero for classes without samples. May be replaced between epochs.
    num_samples
        How many indices an epoch has.
    seed
        Draws are a function of (seed, epoch) alone. Every pass over the sampler is the next epoch;
        `set_epoch` picks one, for instance when a run is resumed.

    Example
    -------
    >>> sampler = ClassSampler(labels, probabilities, num_samples=len(labels), seed=0)
    >>> loader = torch.utils.data.DataLoader(dataset, batch_size=128, sampler=sampler)
    """

    def __init__(
        self, labels: npt.ArrayLike | torch.Tensor, probabilities: npt.ArrayLike, num_samples: int, seed: int
    ) -> None:
        self.labels, _ = _checked(labels, probabilities)
        self.num_samples = num_samples
        self.seed = seed
        self.epoch = 0
        self.probabilities = probabilities
        if num_samples < 1:
            raise ValueError(f"num_samples is {num_samples}: it must be at least 1")

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        return self._probabilities

    @probabilities.setter
    def probabilities(self, values: npt.ArrayLike) -> None:
        _, self._probabilities = _checked(self.labels, values)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(self.epoch,)))
        self.epoch += 1
        yield from draw_by_class(self.labels, self.probabilities, self.num_samples, generator).tolist()
