"""How far each client's model moved in a round, and how far it ended from the others (the left side of Lemma 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isfl.federation.distances import update_blocks
from isfl.federation.settings import Settings
from isfl.federation.values import ClientUpdate, FederationState, Weights
from isfl.theory.arrays import Array


@dataclass(frozen=True)
class Movement:
    """Squared distances of the admitted clients' models, over the trainable parameters."""

    update: Array
    """(n,) `||theta^k - theta||^2` from the global model that the client was sent."""
    drift: Array
    """(n,) `||theta^k - sum_l pi_l theta^l||^2` from the weighted mean of these models."""


def movement(
    state: FederationState, admitted: Sequence[ClientUpdate], settings: Settings, parameters: frozenset[str]
) -> Movement | None:
    """Measure the clients' movement in the round after `state`; None if no two models can be compared."""
    # Clients that start from models of their own have not drifted apart: they never were together.
    together = settings.training.initial_models == "shared" or state.round > 0
    if not admitted or not together or settings.secure is not None:
        return None
    weights = settings.scheme.aggregation.client_weights([update.num_samples for update in admitted])
    return squared_distances(admitted, state.model, weights, parameters)


def squared_distances(
    updates: Sequence[ClientUpdate], reference: Weights, weights: Array, parameters: frozenset[str]
) -> Movement:
    """Measure both distances, in double precision and in an order that does not depend on the number of threads."""
    update, drift = np.zeros((2, len(updates)))
    for moved in update_blocks(updates, reference, parameters):
        update += np.einsum("kn,kn->k", moved, moved)  # einsum alone never shares a sum among threads
        moved -= np.einsum("k,kn->n", weights, moved)
        drift += np.einsum("kn,kn->k", moved, moved)
    return Movement(update, drift)
