"""The plain values that travel between server and clients, and the state a federation consists of.

An engine carries them: in one process, to worker processes, or over Flower. They hold tensors, arrays,
numbers and strings only, so that each can be written down and sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace

import numpy as np
from torch import Tensor, nn

from isfl.theory.arrays import Array

Weights = dict[str, Tensor]
"""A model's state: parameters and buffers by name."""


@dataclass(frozen=True)
class ClientProfile:
    """What the server learns about a client before it first takes part."""

    client: int
    num_samples: int
    class_counts: Array | None
    """(C,) exact or noised counts; None where they stay private."""


@dataclass(frozen=True)
class Masking:
    """Server to client, with `secure`: what a client needs to mask its update."""

    table: Weights | None = None
    """The neighbours' public keys (`isfl.federation.secure.tables`)."""
    weight: float | None = None
    """The client's weight in the sum, at most 1."""
    largest: int | None = None
    """Samples of the largest client; a loss weighs as much as its client's samples, in units of this."""


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
    masking: Masking = Masking()


@dataclass(frozen=True)
class ClientUpdate:
    """Client to server: the trained model and what training it was like."""

    client: int
    num_samples: int
    model: Weights
    """With `secure`, one vector of masked integers in its place; empty if the client withdraws its update."""
    train_loss: float | None
    """None from a client that protects what it sends (`privacy.at = "client"`, `secure`): a loss is a function of its
    data."""
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
    sent: bool = True
    """Whether the client was sent the task."""


@dataclass(frozen=True)
class LateAnswer:
    """In place of an answer, from an engine whose clients take real time: the round it belongs to closed before it."""

    client: int
    round: int
    update: ClientUpdate | None = None
    """What has arrived of it since, in this round or a later one: its cost was paid."""
    sent: bool = True
    """Whether the client was sent the task; not, if it was still at work for an earlier round."""


TrainAnswer = ClientUpdate | Refusal | LateAnswer


@dataclass(frozen=True)
class Observation:
    """What a simulation may look at and a private deployment may not."""

    probabilities: Array
    """(C,) what the client drew with."""
    shares: Array
    """(C,) its label mix `p^k`."""


@dataclass(frozen=True)
class SecureTask:
    """Server to client, with `secure`: one phase of the exchange of keys and shares."""

    round: int
    client: int
    phase: str
    table: Weights
    """Rows of bytes by client (`isfl.federation.secure.tables`)."""


@dataclass(frozen=True)
class SecureAnswer:
    """Client to server, the answer to that."""

    client: int
    table: Weights


@dataclass(frozen=True)
class RoundSecret:
    """What a client keeps from phase to phase of secure aggregation, until it has answered the last one."""

    secret: str | None = field(default=None, repr=False)
    """32 random bytes, as hexadecimal digits; not for logs."""
    round: int | None = None
    phase: str | None = None
    """The last phase that it answered."""
    needed: int | None = None
    """How many of its neighbours and itself give its secrets back."""
    neighbours: np.ndarray | None = None
    """(n,) the clients that hold shares of its secrets beside itself."""
    keys: np.ndarray | None = None
    """(n, 64) the neighbours' public keys, of masks and for sealed messages."""


@dataclass(frozen=True)
class ClientMemory:
    """What a client keeps between rounds and never sends."""

    local_model: Weights | None = None
    """Its last trained model: MOON's previous one, or what a client that measures its own `L` compares."""
    statistics: Weights = field(default_factory=dict)
    """BatchNorm statistics, where they are kept local."""
    probabilities: Array | None = None
    """(C,) what it drew with last, or (`lipschitz_at = "client"`, after renewal) will draw with next."""
    secret: RoundSecret = RoundSecret()


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
    lipschitz: Array | None
    """(C,) a function of models and data the server has; None with `secure`, where it does not have the models."""
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
    """All that the server carries from round to round. With the clients' memories: all there is to a run.

    It has one row per client that has introduced itself, in the order of `clients`; it grows with the clients seen, not
    with the number of clients.
    """

    round: int
    model: Weights
    num_clients: int
    """K, seen or not."""
    clients: np.ndarray
    """(n,) the clients seen, in ascending order: client `clients[i]` has row `i` of every array below."""
    target: Array
    """(n, C)."""
    sizes: np.ndarray
    """(n,) samples per client."""
    asked: np.ndarray
    """(n,) how many rounds have asked each client to train."""
    counts: Array | None
    """(n, C) class counts; None where they stay private."""
    probabilities: Array | None
    """(n, C) what each client draws with next, where the server computes it."""
    lipschitz: Array | None = None
    """(n, C) the last values of each client, NaN where unknown, where clients solve for their own probabilities."""
    server: ServerMemory = ServerMemory()
    repeated: int | None = None
    """Rounds that may have asked real clients twice, with fresh noise, because the run was interrupted; None: none."""

    def rows(self, clients: Sequence[int]) -> np.ndarray:
        """Return the positions of these clients' rows; all of them have been seen."""
        return np.searchsorted(self.clients, np.asarray(clients, dtype=np.int64))

    def row(self, client: int) -> int:
        """Return the position of a client's row."""
        return int(self.rows([client])[0])

    def with_asked(self, clients: Sequence[int]) -> FederationState:
        """Return the state in which one more round has asked these clients."""
        asked = self.asked.copy()
        asked[self.rows(clients)] += 1
        return replace(self, asked=asked)


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
