"""Drawing samples by class: a sampler for any DataLoader.

Class `i` is drawn with probability `q_i`, then one of its samples uniformly, with replacement. This is the local
importance sampling of Algorithm 2 in Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for
Non-i.i.d. Data with Local Importance Sampling", IEEE Internet of Things Journal, 2024.
"""

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
    """Return indices of samples: each a class drawn by `q`, then one of its samples uniformly, with replacement.

    Parameters
    ----------
    labels
        (N,) the class of every sample.
    probabilities
        (C,) `q`, zero for classes without samples.
    count
        The number of draws.
    generator
        The source of randomness.

    Returns
    -------
    Indices
        (count,) indices into `labels`.

    Raises
    ------
    ValueError
        If labels and probabilities do not fit together; the message names the index.

    Examples
    --------
    >>> import numpy as np
    >>> from isfl.sampling import draw_by_class
    >>> drawn = draw_by_class([0, 1, 1, 1], [1.0, 0.0], 3, np.random.default_rng(0))
    >>> drawn.tolist()
    [0, 0, 0]
    """
    y, q = _checked(labels, probabilities)
    per_class = np.bincount(y, minlength=len(q))
    order = np.argsort(y, kind="stable")
    start = np.concatenate([[0], np.cumsum(per_class)[:-1]])
    classes = generator.choice(len(q), size=count, p=q)
    return order[start[classes] + (generator.random(count) * per_class[classes]).astype(np.int64)]


def draw_evenly(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, count: int, epochs: int, generator: np.random.Generator
) -> list[Indices]:
    """Return the indices of several epochs, each class as often as `q` says and its samples in turn.

    Each sample of class `i` is drawn as often, in expectation, as by `draw_by_class`, with as little variance as
    possible. A class has `floor(q_i count)` or one more places in an epoch (systematic sampling: W. G. Madow,
    L. H. Madow, "On the Theory of Systematic Sampling", Annals of Mathematical Statistics, 1944). Its samples fill them
    in random order, and none is used again before all have been, also across epochs. With `q` the mix of the labels and
    as many draws as samples, every epoch is a permutation.

    Parameters
    ----------
    labels
        (N,) the class of every sample.
    probabilities
        (C,) `q`, zero for classes without samples.
    count
        The number of draws per epoch.
    epochs
        The number of epochs.
    generator
        The source of randomness.

    Returns
    -------
    list of Indices
        One array (count,) per epoch.

    Raises
    ------
    ValueError
        If labels and probabilities do not fit together; the message names the index.

    Examples
    --------
    Nine samples of class 0 and one of class 1, in equal shares: each of the nine is drawn once in two epochs of nine
    draws, give or take one.

    >>> import numpy as np
    >>> from isfl.sampling import draw_evenly
    >>> first, second = draw_evenly([0] * 9 + [1], [0.5, 0.5], 9, 2, np.random.default_rng(0))
    >>> np.bincount(np.concatenate([first, second]))[:9].max()
    np.int64(1)
    """
    y, q = _checked(labels, probabilities)
    ends = np.cumsum(q)
    ends = count * (ends / ends[-1])
    rows = [np.diff(np.floor(ends + generator.random()), prepend=0.0) for _ in range(epochs)]
    places = np.array(rows).reshape(epochs, len(q)).astype(np.int64)
    drawn: list[list[Indices]] = [[np.zeros(0, dtype=np.int64)] for _ in range(epochs)]
    for label in np.flatnonzero(places.any(axis=0)):
        members, needed = np.flatnonzero(y == label), places[:, label]
        turns = -(-int(needed.sum()) // len(members))
        queue = np.concatenate([generator.permutation(members) for _ in range(turns)])
        for epoch, part in enumerate(np.split(queue[: needed.sum()], np.cumsum(needed)[:-1])):
            drawn[epoch].append(part)
    return [generator.permutation(np.concatenate(parts)) for parts in drawn]


def _checked(
    labels: npt.ArrayLike | torch.Tensor, probabilities: npt.ArrayLike
) -> tuple[Indices, npt.NDArray[np.float64]]:
    y = np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"labels must be a vector of whole numbers, found {y.dtype} of shape {y.shape}")
    if np.ndim(probabilities) != 1:
        raise ValueError(f"probabilities must have shape (C,), for one client, found {np.shape(probabilities)}")
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
    """Draw classes with given probabilities, and samples uniformly inside a class, with replacement.

    This is how an ISFL client draws its samples (Algorithm 2 of Zhu et al., IEEE Internet of Things Journal, 2024).

    Parameters
    ----------
    labels
        (N,) the class of every sample of the data set.
    probabilities
        (C,) `q`, zero for classes without samples. May be replaced between epochs.
    num_samples
        The number of indices in an epoch.
    seed
        Draws are a function of (seed, epoch) alone. Every pass over the sampler is the next epoch;
        `set_epoch` picks one, for instance when a run is resumed.

    Raises
    ------
    ValueError
        If labels and probabilities do not fit together (the message names the index), or `num_samples` is below 1.

    Examples
    --------
    Nine samples of class 0 and one of class 1 become a balanced epoch:

    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from isfl import ClassSampler
    >>> labels = torch.tensor([0] * 9 + [1])
    >>> sampler = ClassSampler(labels, [0.5, 0.5], num_samples=1000, seed=0)
    >>> loader = DataLoader(TensorDataset(labels), batch_size=1000, sampler=sampler)
    >>> [batch] = next(iter(loader))
    >>> 0.45 < batch.float().mean() < 0.55
    tensor(True)

    With new probabilities, the next pass over the loader is the next epoch:

    >>> sampler.probabilities = [1.0, 0.0]
    >>> [batch] = next(iter(loader))
    >>> batch.sum()
    tensor(0)
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
        """(C,) `q`; it can be replaced between epochs."""
        return self._probabilities

    @probabilities.setter
    def probabilities(self, values: npt.ArrayLike) -> None:
        _, self._probabilities = _checked(self.labels, values)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next pass draws."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(self.epoch,)))
        self.epoch += 1
        yield from draw_by_class(self.labels, self.probabilities, self.num_samples, generator).tolist()
