"""The shares `p` a federation aims at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isfl.errors import UserError
from isfl.federation.settings import GivenTarget, LocalTarget, Target, UniformTarget
from isfl.federation.values import ClientProfile
from isfl.theory.arrays import Array


def target_shares(target: Target, profiles: Sequence[ClientProfile], num_classes: int) -> Array:
    """(K, C): global shares from (noised) counts, blended with local ones, uniform, or as given."""
    clients = len(profiles)
    if isinstance(target, UniformTarget):
        return np.full((clients, num_classes), 1.0 / num_classes)
    if isinstance(target, GivenTarget):
        given = np.atleast_2d(np.asarray(target.shares, dtype=np.float64))
        if given.shape[1] != num_classes or given.shape[0] not in (1, clients):
            raise UserError(
                f"target.shares has shape {np.asarray(target.shares).shape}: give {num_classes} numbers, "
                f"or {clients} rows of them, one per client"
            )
        return np.broadcast_to(given / given.sum(axis=1, keepdims=True), (clients, num_classes)).copy()
    total = np.zeros(num_classes)
    for profile in sorted(profiles, key=lambda p: p.client):
        assert profile.class_counts is not None
        total += profile.class_counts
    total = np.maximum(total, 0.0)  # noise may push a rare class below zero
    if total.sum() <= 0:
        raise UserError("target.kind = 'noised': the noise left no positive count; raise target.epsilon")
    shares = np.broadcast_to(total / total.sum(), (clients, num_classes)).copy()
    if isinstance(target, LocalTarget):
        counts = np.stack([p.class_counts for p in profiles if p.class_counts is not None])
        shares = target.weight * counts / counts.sum(axis=1, keepdims=True) + (1.0 - target.weight) * shares
    return shares
