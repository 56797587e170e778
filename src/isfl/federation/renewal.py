"""New sampling probabilities from Lipschitz values: the same function at the server and at the client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isfl.federation.drawing import class_probabilities
from isfl.federation.scheme import ImportanceSampling, Sampling
from isfl.theory.arrays import Array
from isfl.theory.probabilities import sampling_probabilities
from isfl.theory.rho import rho


@dataclass(frozen=True)
class Renewal:
    """For n clients: the probabilities they draw with next, and what the ones they used were worth."""

    probabilities: Array
    """(n, C)."""
    rho_used: Array
    """(n,) `rho` of the probabilities that were in use, NaN where `L` is unknown."""
    rho_paper: Array
    rho_minimum: Array


def known_row(lipschitz: Array | None, client: int) -> Array | None:
    """A client's row of (K, C) Lipschitz values, if any of it is known."""
    return None if lipschitz is None or not np.isfinite(lipschitz[client]).any() else lipschitz[client]


def own_probabilities(rule: Sampling, counts: Array, target: Array, lipschitz: Array | None) -> Array:
    """(C,) what a client draws with that knows its class counts and, with ISFL, the Lipschitz values it was sent."""
    first = class_probabilities(rule, counts, target)
    if not isinstance(rule, ImportanceSampling) or lipschitz is None:
        return first
    shares = counts / counts.sum()
    return np.asarray(renew(rule, target[None], shares[None], first[None], lipschitz[None]).probabilities[0])


def renew(rule: ImportanceSampling, target: Array, local: Array, used: Array, lipschitz: Array) -> Renewal:
    """Solve problem P for n clients; all arrays are (n, C).

    A client without any known `L` (its model equals the global one, or no gradient was finite) keeps the
    probabilities it had.
    """
    floors = {"floor": rule.floor, "target_floor": rule.target_floor}
    by_solver = {
        "paper": sampling_probabilities(target, local, lipschitz, solver="paper", **floors),
        "exact": sampling_probabilities(target, local, lipschitz, solver="exact", **floors),
    }
    known = np.asarray(np.isfinite(lipschitz).any(axis=1))

    def factor(q: Array) -> Array:
        return np.where(known, rho(q, target, lipschitz), np.nan)

    return Renewal(
        probabilities=np.where(known[:, None], by_solver[rule.solver], used),
        rho_used=factor(used),
        rho_paper=factor(by_solver["paper"]),
        rho_minimum=factor(by_solver["exact"]),
    )
