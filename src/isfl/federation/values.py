"""The plain values that travel between server and clients, and the state a federation consists of.

An engine carries them: in one process, to worker processes, or over Flower. They hold tensors, arrays,
numbers and strings only, so that each can be written down and sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass

import numpy as np
from torch import Tensor

from isfl.theory.arrays import Array

Weights = dict[str, Tensor]
"""A model's state: parameters and buffers by name."""


@dataclass(frozen=True)
class ClientProfile:
    """What the server learns about a client before the first round."""

    client: int
    num_samples: int
    class_counts: Array | None
    """(C,) exact or noised counts; None where they stay private."""


@dataclass(frozen=True)
class TrainTask:
    """Server to client: train from this model."""

    round: int
    client: int
    model: Weights
    target: Array
    """(C,) the shares the client aims at."""
    probabilities: Array | None = None
    """(C,) computed at the server; None where the client finds them itself."""


@dataclass(frozen=True)
class ClientUpdate:
    """Client to server: the trained model and what training it was like."""

    client: int
    num_samples: int
    model: Weights
    train_loss: float
    gradient_norm: Array
    """(E_l,) mean norm of the stochastic gradients, epoch by epoch."""
    gradient_variance: Array
    """(E_l,) their variance around the epoch's mean."""
    training_evaluations: int
    sampling_evaluations: int
    training_seconds: float
    sampling_seconds: float


@dataclass(frozen=True)
class Refusal:
    """In place of an answer, from an engine: this client gave none that could be read, and why."""

    client: int
    reason: str


@dataclass(frozen=True)
class Rho:
    """`rho` of the probabilities in use, of the paper's rule, and its minimum."""

    used: float
    paper: float
    minimum: float


@dataclass(frozen=True)
class Observation:
    """What a simulation may look at and a private deployment may not."""

    probabilities: Array
    """(C,)."""
    rho: Rho | None


@dataclass(frozen=True)
class ClientMemory:
    """What a client keeps between rounds and never sends."""

    local_model: Weights | None = None
    """Its last trained model: MOON's previous model, and what private ISFL compares with the global one."""
    statistics: Weights = field(default_factory=dict)
    """BatchNorm statistics, where they are kept local."""
    probabilities: Array | None = None
    """(C,) what it drew with last, or (private ISFL, after renewal) will draw with next."""
    rho: Rho | None = None
    """Private ISFL: what the probabilities of the last round were worth."""


@dataclass(frozen=True)
class RenewTask:
    """Server to client, private ISFL: the new global model; find your own probabilities."""

    round: int
    client: int
    model: Weights
    target: Array


@dataclass(frozen=True)
class RenewalReport:
    """Client to server, private ISFL: done. Holds nothing that the server could not compute itself.

    In particular no `rho`: with `p` and `L` known, its digits give the label mix away.
    """

    client: int
    lipschitz: Array
    """(C,) a function of models and data the server has."""
    dropped: int
    evaluations: int
    seconds: float


@dataclass(frozen=True)
class ServerMemory:
    """Buffers of the server's optimiser."""

    first: Weights = field(default_factory=dict)
    second: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class FederationState:
    """All that the server carries from round to round. With the clients' memories: all there is to a run."""

    round: int
    model: Weights
    target: Array
    """(K, C)."""
    sizes: np.ndarray
    """(K,) samples per client."""
    counts: Array | None
    """(K, C) class counts; None where they stay private."""
    probabilities: Array | None
    """(K, C) what each client draws with next, where the server computes it."""
    server: ServerMemory = ServerMemory()


def payload_bytes(value: object) -> int:
    """Bytes of the tensors and arrays in a value: what has to cross the wire, without any encoding."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(payload_bytes(item) for item in value.values())
    if is_dataclass(value):
        return sum(payload_bytes(getattr(value, f.name)) for f in fields(value))
    return 0
