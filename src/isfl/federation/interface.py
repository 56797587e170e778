"""What a round asks of the place it runs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from isfl.federation.client_state import StoredState
from isfl.federation.evaluation import ClassScores, Score
from isfl.federation.values import (
    ClientProfile,
    FederationState,
    LateAnswer,
    Observation,
    Refusal,
    RenewalReport,
    RenewTask,
    SecureAnswer,
    SecureTask,
    TrainAnswer,
    TrainTask,
    Weights,
)
from isfl.randomness import Noise
from isfl.smoothness import LipschitzEstimate, MomentsEstimate
from isfl.theory.arrays import Array


@dataclass(frozen=True)
class ModelFacts:
    """What the server has to know about the model's state."""

    parameters: frozenset[str]
    """Names of the trainable parameters."""
    statistics: frozenset[str]
    """Names of BatchNorm statistics that stay at the clients; empty unless they are kept local."""


class Server(Protocol):
    """What the server computes itself, from its model, the public set and the test set."""

    num_classes: int
    num_public: int
    """Samples of the public set."""
    facts: ModelFacts

    def initial_model(self) -> Weights: ...
    def lipschitz(self, local: Sequence[Weights], reference: Weights) -> LipschitzEstimate: ...
    def moments(self, model: Weights) -> MomentsEstimate:
        """Moments of the gradients of each class on the public set."""
        ...

    def with_statistics(self, model: Weights) -> Weights:
        """The model with BatchNorm statistics estimated on the public set."""
        ...

    def public_loss(self, model: Weights) -> Array:
        """(C,) mean loss of each class on the public set, NaN where it has none."""
        ...

    def privacy_noise(self, round: int) -> Noise:
        """The source of the noise that hides clients in this round; a secret where clients are real."""
        ...

    def gradient_square(self, model: Weights, target: Array) -> tuple[float, int]:
        """`||grad l(theta)||^2` of `l = sum_i p_i l_i` on the public set, and the gradient evaluations it took."""
        ...


class Engine(Protocol):
    """Where a round runs: a server, and a way to its clients.

    Answers may come in any order; a client that fails is missing from them, or has a refusal.
    """

    @property
    def server(self) -> Server: ...
    @property
    def num_clients(self) -> int:
        """K, connected or not."""
        ...

    @property
    def real_time(self) -> bool:
        """Whether clients take real time: then `train` itself closes a round (`[stragglers]`) and names who is late."""
        ...

    @property
    def client_states(self) -> Mapping[int, StoredState]:
        """What clients of this machine remember, for checkpoints; nothing where clients keep their own state."""
        ...

    def restore(self, state: FederationState, client_states: Mapping[int, StoredState]) -> None:
        """Continue from a checkpoint."""
        ...

    def introduce(self, clients: Sequence[int] | None = None) -> Sequence[ClientProfile | Refusal]:
        """What these clients, or all, say of themselves."""
        ...

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[TrainAnswer]: ...
    def renew(self, tasks: Sequence[RenewTask]) -> Sequence[RenewalReport | Refusal]: ...
    def exchange(self, tasks: Sequence[SecureTask]) -> Sequence[SecureAnswer | Refusal | LateAnswer]:
        """One phase of secure aggregation, in which nothing is trained.

        A client that is still at work for a closed round is not asked: it is late.
        """
        ...

    def evaluate(self, model: Weights, clients: Sequence[int] | None = None) -> tuple[ClassScores, Mapping[int, Score]]:
        """D_S by class, and the own data of these clients, or of all, as far as they can be asked."""
        ...

    def observe(self, tasks: Sequence[TrainTask]) -> Mapping[int, Observation]:
        """What clients hold and drew with, or would have, given these tasks, one per client.

        As far as it may be looked at: every client in a simulation, none where it is private.
        """
        ...
