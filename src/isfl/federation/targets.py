"""The class shares `p` that a federation aims at.

To add a target, write a subclass of `Target` here and add it to `TARGETS`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from isfl.errors import UserError
from isfl.federation.target_error import TargetError, estimation_error
from isfl.federation.values import ClientProfile
from isfl.randomness import Noise
from isfl.schema import Part, one_of
from isfl.theory.arrays import Array, shares
from isfl.theory.lies import capped

CAP = Field(
    None,
    ge=1,
    description="a client's counts weigh at most as much as this many clients of the median size; none: no limit",
)
"""Of targets that follow from what clients say of themselves."""


class Target(Part):
    """The base of all targets."""

    needs_exact_counts: ClassVar[bool] = False
    """Whether the server computes the shares from exact class counts of the clients."""

    from_all_clients: ClassVar[bool] = True
    """Whether the shares follow from the data of all clients, so that all introduce themselves before the first round;
    otherwise each does when it is first chosen."""

    kind: str

    def check(self, num_clients: int, num_classes: int) -> None:
        """Refuse shares that do not fit the federation, before the first round."""

    @property
    def count_epsilon(self) -> float | None:
        """The privacy budget with which clients add noise to the counts they send; None: they add none."""
        return None

    def sent_counts(self, counts: Array, noise: Noise) -> Array:
        """Return the (C,) class counts as a client sends them."""
        return counts

    @abstractmethod
    def client_shares(
        self, profiles: Sequence[ClientProfile], num_classes: int, num_clients: int | None = None
    ) -> Array:
        """Return the (n, C) shares that each of these clients aims at; `num_clients` is K, if these are not all."""

    def revised(self, shares: Array, counts: Array | None) -> Array:
        """Return the (n, C) shares of all clients seen, after more were; most targets do not change.

        `counts` are their (n, C) class counts; None where they are private.
        """
        return shares

    def error(self, counts: Array | None, num_clients: int) -> TargetError | None:
        """Return the error of shares that are estimated from some of the clients; None for other shares."""
        return None


class GlobalTarget(Target):
    """The class shares of all clients' data together; clients send their class counts."""

    needs_exact_counts: ClassVar[bool] = True
    kind: Literal["global"] = "global"
    cap: float | None = CAP

    def client_shares(
        self, profiles: Sequence[ClientProfile], num_classes: int, num_clients: int | None = None
    ) -> Array:
        return _global_shares(profiles, num_classes, self.cap)


class UniformTarget(Target):
    """All classes alike; needs no class counts. Clients introduce themselves when they are first chosen."""

    from_all_clients: ClassVar[bool] = False
    kind: Literal["uniform"] = "uniform"

    def client_shares(
        self, profiles: Sequence[ClientProfile], num_classes: int, num_clients: int | None = None
    ) -> Array:
        return np.full((len(profiles), num_classes), 1.0 / num_classes)


class LocalTarget(Target):
    """Personalisation: each client aims at its own mix, or at a blend of it with the global shares.

    `p = weight * local + (1 - weight) * global`, one vector per client (the paper's remark in Section V-B).
    """

    needs_exact_counts: ClassVar[bool] = True
    kind: Literal["local"] = "local"
    weight: float = Field(1.0, ge=0, le=1, description="1: each client's own mix; 0: the global shares")

    def client_shares(
        self, profiles: Sequence[ClientProfile], num_classes: int, num_clients: int | None = None
    ) -> Array:
        counts = np.stack([p.class_counts for p in profiles if p.class_counts is not None])
        local = self.weight * counts / counts.sum(axis=1, keepdims=True)
        mixed: Array = local + (1.0 - self.weight) * _global_shares(profiles, num_classes)
        return mixed


class GivenTarget(Target):
    """A vector for all clients, or one vector per client (personalisation).

    Clients introduce themselves when they are first chosen.
    """

    from_all_clients: ClassVar[bool] = False
    kind: Literal["given"] = "given"
    shares: list[float] | list[list[float]] = Field(description="numbers that sum to 1, in the order of the classes")

    @field_validator("shares")
    @classmethod
    def _are_shares(cls, value: list[float] | list[list[float]]) -> object:
        if len({len(row) for row in value if isinstance(row, list)}) > 1:
            raise ValueError("the rows have different lengths")
        shares("shares", np.asarray(value, dtype=float))
        return value

    def check(self, num_clients: int, num_classes: int) -> None:
        given = np.atleast_2d(np.asarray(self.shares))
        if given.shape[1] != num_classes or given.shape[0] not in (1, num_clients):
            raise UserError(
                f"target.shares has shape {np.asarray(self.shares).shape}: give {num_classes} numbers, "
                f"or {num_clients} rows of them, one per client"
            )

    def client_shares(
        self, profiles: Sequence[ClientProfile], num_classes: int, num_clients: int | None = None
    ) -> Array:
        self.check(num_clients or len(profiles), num_classes)
        given = np.atleast_2d(np.asarray(self.shares, dtype=np.float64))
        rows = given / given.sum(axis=1, keepdims=True)
        return rows[[0 if len(rows) == 1 else profile.client for profile in profiles]]


class NoisedTarget(Target):
    """Global shares from class counts to which each client adds Laplace noise of scale 2/epsilon before sending.

    The number of samples is known, so two data sets are neighbours when one label differs: the counts then differ
    by 2 in sum, and a client's counts are epsilon-differentially private (Dwork, McSherry, Nissim, Smith, "Calibrating
    Noise to Sensitivity in Private Data Analysis", TCC 2006).
    """

    kind: Literal["noised"] = "noised"
    epsilon: float = Field(gt=0, description="the smaller, the more private and the less accurate")
    cap: float | None = CAP

    @property
    def count_epsilon(self) -> float | None:
        return self.epsilon

    def sent_counts(self, counts: Array, noise: Noise) -> Array:
        return counts + noise.laplace(scale=2.0 / self.epsilon, size=len(counts))

    def client_shares(
        self, profiles: Sequence[ClientProfile], num_classes: int, num_clients: int | None = None
    ) -> Array:
        return _global_shares(profiles, num_classes, self.cap)


class EstimatedTarget(Target):
    """The class shares of the clients seen so far, for federations too large to ask every client first.

    Clients send their class counts when they are first chosen. `target_error` in the metrics has the standard errors of
    the shares and a bound on their distance from those of all clients (`federation/target_error.py`). With all clients
    seen, these are the shares of `global`.

    The target of all clients seen changes with every new one. Probabilities that the server has computed for a client
    follow when that client's next update is admitted.
    """

    needs_exact_counts: ClassVar[bool] = True
    from_all_clients: ClassVar[bool] = False
    kind: Literal["estimated"] = "estimated"
    cap: float | None = CAP

    def client_shares(
        self, profiles: Sequence[ClientProfile], num_classes: int, num_clients: int | None = None
    ) -> Array:
        return _global_shares(profiles, num_classes, self.cap)  # of these; `revised` has those of all clients seen

    def revised(self, shares: Array, counts: Array | None) -> Array:
        assert counts is not None, "the server has exact counts"
        return np.broadcast_to(_shares(_capped(counts, self.cap).sum(axis=0)), shares.shape).copy()

    def error(self, counts: Array | None, num_clients: int) -> TargetError | None:
        assert counts is not None, "the server has exact counts"
        return estimation_error(_capped(counts, self.cap), num_clients)


TARGETS: tuple[type[Target], ...] = (
    GlobalTarget,
    UniformTarget,
    LocalTarget,
    GivenTarget,
    NoisedTarget,
    EstimatedTarget,
)

if TYPE_CHECKING:
    AnyTarget = Target
else:
    AnyTarget = one_of(TARGETS, "kind")


def _global_shares(profiles: Sequence[ClientProfile], num_classes: int, cap: float | None = None) -> Array:
    """Return (K, C): the same shares for each client, from all clients' counts as they were sent.

    With a cap, counts whose absolute values sum to more than `cap` times the median sum are scaled down to that.
    """
    ordered = [p.class_counts for p in sorted(profiles, key=lambda p: p.client) if p.class_counts is not None]
    total = _capped(np.stack(ordered), cap).sum(axis=0)
    return np.broadcast_to(_shares(total), (len(profiles), num_classes)).copy()


def _capped(counts: Array, cap: float | None) -> Array:
    if len(counts) == 0:
        return counts  # no client has introduced itself: there is no median
    sizes = np.abs(counts).sum(axis=1)
    allowed = capped(sizes, cap)
    factors = np.divide(allowed, sizes, out=np.ones_like(sizes), where=sizes > allowed)
    return np.asarray(counts * factors[:, None])


def _shares(total: Array) -> Array:
    total = np.maximum(total, 0.0)  # noise may push a rare class below zero
    if total.sum() <= 0:
        raise UserError("target.kind = 'noised': the noise left no positive count; raise target.epsilon")
    return np.asarray(total / total.sum())
