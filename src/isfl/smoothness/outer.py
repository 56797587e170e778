"""Weight gradients as sums of outer products, and squared norms of them and of their differences.

The gradient of a Linear or a convolution is `G = sum_t d_t x_t^T` over positions `t`, with `x_t` the input of the
weight and `d_t` the gradient at the output. With few positions its norm follows from two small Gram matrices,
`||G||^2 = sum_{s,t} <d_s, d_t> <x_s, x_t>`, without computing `G`, which is as large as the weight for every sample.
For Linear layers this is I. Goodfellow, Efficient Per-Example Gradient Computations, 2015; the norms of differences are
ours. With many positions the product is cheaper; `slim` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

PIECE = 4 << 20
"""Bytes processed at a time, so that the output of one step is still in the cache when the next one reads it. All
pieces share the same memory: the first access to fresh memory is expensive."""


@dataclass(frozen=True)
class Outer:
    """(B, ...) gradients `G_b = sum_t d_{b,t} x_{b,t}^T`, not multiplied out."""

    factors: tuple[tuple[Tensor, Tensor], ...]
    """For each call of the layer `d` (B, groups, *positions, O) and `x` (B, groups, *positions, *P), which may be an
    overlapping view: it is copied for a few samples at a time."""
    positions: int
    """The number of dimensions that are positions."""
    fold: Callable[[Tensor], Tensor]
    """From (B, groups, O, *P) to the shape of the parameter."""

    def __len__(self) -> int:
        return len(self.factors[0][0])

    def __add__(self, other: Outer) -> Outer:
        return Outer(self.factors + other.factors, self.positions, self.fold)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """`(T, O, P)`."""
        d, x = self.factors[0]
        length = sum(left.shape[2 : 2 + self.positions].numel() for left, _ in self.factors)
        return length, d.shape[-1], x.shape[2 + self.positions :].numel()

    @property
    def nbytes(self) -> int:
        """The bytes of the factors' storage."""
        return sum(part.untyped_storage().nbytes() for factors in self.factors for part in factors)

    def pieces(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield slices of samples with their `d` (b * groups, T, O) and `x` (b * groups, T, P).

        The tensors are valid until the next piece.
        """
        (t, o, p), groups = self.sizes, self.factors[0][0].shape[1]
        memory: Tensor | None = None
        for some in pieces(len(self), groups * (t * p + o * p) * self.factors[0][0].element_size()):
            batch = (some.stop - some.start) * groups
            if memory is None and (len(self.factors) > 1 or not _viewable(self.factors[0][1], self.positions)):
                memory = self.factors[0][1].new_empty(batch, t, p)
            left = [d[some].reshape(batch, -1, o) for d, _ in self.factors]
            yield some, left[0] if len(left) == 1 else torch.cat(left, 1), self._right(some, batch, memory)

    def _right(self, samples: slice, batch: int, memory: Tensor | None) -> Tensor:
        """Return `x` of some samples, (batch, T, P), copied into `memory` if there is one."""
        _, _, p = self.sizes
        if memory is None:
            return self.factors[0][1][samples].reshape(batch, -1, p)
        rows, begin = memory[:batch], 0
        for _, x in self.factors:
            end = begin + x.shape[2 : 2 + self.positions].numel()
            rows[:, begin:end].view(x[samples].shape).copy_(x[samples])
            begin = end
        return rows

    def product(self) -> Tensor:
        """Return `G`, (B, groups, O, P), in the order of `x`."""
        _, o, p = self.sizes
        d, _ = self.factors[0]
        out = d.new_empty(len(self), d.shape[1], o, p)
        for some, left, right in self.pieces():
            torch.bmm(left.transpose(1, 2), right, out=out[some].view(-1, o, p))
        return out

    def dense(self) -> Tensor:
        """Return `G` as (B, *parameter shape)."""
        x = self.factors[0][1]
        product = self.product()
        return self.fold(product.view(*product.shape[:3], *x.shape[2 + self.positions :]))

    def kept(self) -> Tensor | Outer:
        """Return the form in which the gradient is kept to be compared with others."""
        return self if slim(*self.sizes) else self.product()

    def squared_norms(self) -> Tensor:
        """Return `||G_b||^2`, (B,), in double precision on the CPU."""
        squares = []
        t, o, p = self.sizes
        for some, d, x in self.pieces():
            if t * (o + p) < o * p:
                squares.append(_by_sample(_paired(d, d, x, x), some))
            else:
                squares.append(norms(torch.bmm(d.transpose(1, 2), x).view(some.stop - some.start, -1)))
        return torch.cat(squares)

    def squared_differences(self, theirs: Tensor | Outer) -> Tensor:
        """Return `||G_b - H_b||^2`, (B,), in double precision on the CPU; `theirs` comes from `kept`."""
        if isinstance(theirs, Outer) and self.sizes == theirs.sizes:
            return _by_gram(self, theirs)
        other = theirs.product() if isinstance(theirs, Outer) else theirs
        squares: list[Tensor] = []
        memory: Tensor | None = None
        for some, d, x in self.pieces():
            their = other[some].view(len(d), d.shape[2], x.shape[2])
            memory = torch.empty_like(their) if memory is None else memory
            difference = torch.baddbmm(their, d.transpose(1, 2), x, beta=-1, out=memory[: len(d)])
            squares.append(norms(difference.view(some.stop - some.start, -1)))
        return torch.cat(squares)


def slim(t: int, o: int, p: int) -> bool:
    """Return whether the Gram form of a difference is cheaper than the product (a rough count of multiplications).

    It compares three blocks of both Gram matrices with one product, which is also written, read and compared.
    """
    return 3 * t * t * (o + p) < (t + 8) * o * p


def _viewable(x: Tensor, positions: int) -> bool:
    """Return whether positions and values can each become one dimension without a copy."""
    return x[:1].flatten(2, 1 + positions).flatten(3).data_ptr() == x.data_ptr() if len(x) else True


def pieces(batch: int, bytes_each: int) -> Iterator[slice]:
    """Return slices of the batch of about `PIECE` bytes."""
    step = max(1, PIECE // max(1, bytes_each))
    return (slice(start, min(batch, start + step)) for start in range(0, batch, step))


def norms(gradients: Tensor) -> Tensor:
    """Return `||G_b||^2`, (B,), in double precision on the CPU."""
    # The sum of squares would need a temporary of the gradient's size.
    return torch.linalg.vector_norm(gradients.flatten(1), dim=1).double().cpu() ** 2


def _by_gram(ours: Outer, theirs: Outer) -> Tensor:
    """Return `||G_b - H_b||^2` from `G - H = sum_t (d - e)_t x_t^T + e_t (x - y)_t^T` for `H = sum_t e_t y_t^T`.

    Both terms are small when the models are close. The alternative, `||G||^2 - 2 <G, H> + ||H||^2`, is the small
    difference of large numbers and loses all digits.
    """
    squares = []
    for (some, d, x), (_, e, y) in zip(ours.pieces(), theirs.pieces(), strict=True):
        de, xy = d - e, x - y
        square = _paired(de, de, x, x) + 2 * _paired(de, e, x, xy) + _paired(e, e, xy, xy)
        squares.append(_by_sample(square, some))
    return torch.cat(squares)


def _paired(d: Tensor, e: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return `sum_{s,t} <d_s, e_t> <x_s, y_t>`, (B,), the inner product of two sums of outer products."""
    grams = torch.bmm(d, e.transpose(1, 2)).mul_(torch.bmm(x, y.transpose(1, 2)))
    return grams.flatten(1).sum(1, dtype=torch.float64)


def _by_sample(squares: Tensor, samples: slice) -> Tensor:
    """Return the sum over groups; a square that rounding made negative becomes 0, NaN stays NaN."""
    return squares.view(samples.stop - samples.start, -1).sum(1).clamp(min=0).cpu()
