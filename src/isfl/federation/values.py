"""The plain values that travel between server and clients, and the state a federation consists of.

An engine carries them: in one process, to worker processes, or over Flower. They hold tensors, arrays,
numbers and strings only, so that each can be written down and sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass

import numpy as np
from torch import Tensor, nn

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
    lipschitz: Array | None = None
    """(C,) the client's last Lipschitz values, measured at the server, where it solves for its own probabilities."""
    moments: Array | None = None
    """(C (C + 1),) of the gradients of each class at this model (`Moments.packed`), where the rule uses them."""


@dataclass(frozen=True)
class ClientUpdate:
    """Client to server: the trained model and what training it was like."""

    client: int
    num_samples: int
    model: Weights
    train_loss: float | None
    """None from a client that protects what it sends (`privacy.at = "client"`): a loss is a function of its data."""
    training_evaluations: int
    sampling_evaluations: int
    training_seconds: float
    sampling_seconds: float
    diagnostic_seconds: float = 0.0
    gradient_norm: Array | None = None
    """One number per local epoch: the mean norm of its stochastic gradients. Only with `diagnostics.bound`."""
    gradient_variance: Array | None = None
    """Likewise, their variance around the epoch's mean."""


@dataclass(frozen=True)
class Refusal:
    """In place of an answer, from an engine: this client gave none that could be read, and why."""

    client: int
    reason: str


@dataclass(frozen=True)
class Observation:
    """What a simulation may look at and a private deployment may not."""

    probabilities: Array
    """(C,) what the client drew with."""
    shares: Array
    """(C,) its label mix `p^k`."""


@dataclass(frozen=True)
class ClientMemory:
    """What a client keeps between rounds and never sends."""

    local_model: Weights | None = None
    """Its last trained model: MOON's previous one, or what a client that measures its own `L` compares."""
    statistics: Weights = field(default_factory=dict)
    """BatchNorm statistics, where they are kept local."""
    probabilities: Array | None = None
    """(C,) what it drew with last, or (`lipschitz_at = "client"`, after renewal) will draw with next."""


@dataclass(frozen=True)
class RenewTask:
    """Server to client, `lipschitz_at = "client"`: the new global model; measure your own Lipschitz values."""

    round: int
    client: int
    model: Weights
    target: Array


@dataclass(frozen=True)
class RenewalReport:
    """Client to server, the answer to that. Holds nothing that the server could not compute itself.

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
    lipschitz: Array | None = None
    """(K, C) the last values of each client, NaN where unknown, where clients solve for their own probabilities."""
    server: ServerMemory = ServerMemory()


def state_of(model: nn.Module) -> Weights:
    """A copy of the model's state, on the CPU."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


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
