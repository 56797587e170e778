"""ISFL: Zhu, Shi, Fan, Peng, Letaief, "ISFL: Federated Learning for Non-i.i.d. Data with Local Importance Sampling",
IEEE Internet of Things Journal 2024. New probabilities from Lipschitz values, by the same function at the server and at
the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from pydantic import Field, model_validator

from isfl.federation.sampling_rules.base import Known, SamplingRule
from isfl.federation.sampling_rules.target import target_on_support
from isfl.schema import name_of, with_meanings
from isfl.smoothness import ESTIMATORS
from isfl.theory.arrays import Array
from isfl.theory.probabilities import SOLVERS, sampling_probabilities
from isfl.theory.rho import rho

if TYPE_CHECKING:
    SolverName = str
    EstimatorName = str
else:
    SolverName, EstimatorName = name_of(SOLVERS), name_of(ESTIMATORS)


class ImportanceSampling(SamplingRule):
    """ISFL: probabilities from target shares and Lipschitz values, renewed each round."""

    names: ClassVar[dict[str, dict[str, Any]]] = {"isfl": {}}
    rule: Literal["isfl"] = "isfl"
    solver: SolverName = Field("paper", description=with_meanings("how q follows from L", SOLVERS))
    floor: float = Field(0.05, ge=0, le=1, description="lowest IS weight: q_i >= floor * p^k_i")
    target_floor: float = Field(0.0, ge=0, le=1, description="q_i >= target_floor * p_i")
    strength: float = Field(
        1.0,
        ge=-1,
        le=1,
        description="s in q = p + s Gamma alpha: 1 the solver's probabilities, 0 the target shares, negative the "
        "opposite way (a control)",
    )
    estimator: EstimatorName = Field("exact", description=with_meanings("how L is measured", ESTIMATORS))
    where: Literal["server", "client"] = Field(
        "server", description="who computes the probabilities; at the client, class counts never leave it"
    )
    lipschitz_at: Literal["server", "client"] = Field(
        "server",
        description="who measures L; with `where = 'client'` the server sends each client its values, or the client "
        "measures its own (where the server sees only sums of models), which takes the model down once more",
    )
    reference: Literal["after", "before"] = Field(
        "after", description="compare local models with the global model after (paper) or before the aggregation"
    )
    first_round: Literal["local", "target"] = Field(
        "local", description="what the first round draws by: the local mix (weights of 1) or the target shares"
    )

    @model_validator(mode="after")
    def _floors_can_be_met(self) -> ImportanceSampling:
        if self.floor + self.target_floor > 1:
            raise ValueError(f"floor + target_floor is {self.floor + self.target_floor:g}; it must not exceed 1")
        return self

    @model_validator(mode="after")
    def _measured_where_it_is_used(self) -> ImportanceSampling:
        if self.lipschitz_at == "client" and self.where == "server":
            raise ValueError("lipschitz_at = 'client' is for clients that solve for themselves; set where = 'client'")
        return self

    def class_probabilities(self, counts: Array, target: Array) -> Array:
        """The local mix (weights of 1, as in Algorithm 2), or the target shares."""
        return target_on_support(counts, target) if self.first_round == "target" else counts / counts.sum()

    def own_probabilities(self, known: Known) -> Array:
        """What follows from the Lipschitz values the client was sent; without any, what it begins with."""
        first = self.class_probabilities(known.counts, known.target)
        if known.lipschitz is None:
            return first
        shares = known.counts / known.counts.sum()
        renewal = renew(self, known.target[None], shares[None], first[None], known.lipschitz[None])
        return np.asarray(renewal.probabilities[0])


Value = TypeVar("Value")


@dataclass(frozen=True)
class Rho(Generic[Value]):
    """The factor `rho` of Theorem 1, for three sets of probabilities: arrays over clients, or means over them."""

    used: Value
    """Of the probabilities that were in use."""
    paper: Value
    """Of the paper's solution (Theorem 3)."""
    minimum: Value
    """The smallest value there is, by the exact solver."""

    def mean(self: Rho[Array]) -> Rho[float | None]:
        """Return the means over the clients whose value is known, None where none is."""

        def over_known(values: Array) -> float | None:
            known = values[np.isfinite(values)]
            return float(known.mean()) if len(known) else None

        return Rho(over_known(self.used), over_known(self.paper), over_known(self.minimum))


@dataclass(frozen=True)
class Renewal:
    """For n clients: the probabilities they draw with next, and what the ones they used were worth."""

    probabilities: Array
    """(n, C)."""
    rho: Rho[Array]
    """(n,) each, NaN where `L` is unknown."""


def known_row(lipschitz: Array | None, row: int) -> Array | None:
    """A row of (n, C) Lipschitz values, if any of it is known."""
    return None if lipschitz is None or not np.isfinite(lipschitz[row]).any() else lipschitz[row]


def renew(rule: ImportanceSampling, target: Array, local: Array, used: Array, lipschitz: Array) -> Renewal:
    """Solve problem P for n clients; all arrays are (n, C).

    A client without any known `L` (its model equals the global one, or no gradient was finite) keeps the
    probabilities it had.
    """
    floors = {"floor": rule.floor, "target_floor": rule.target_floor}
    by_solver = {
        solver: sampling_probabilities(target, local, lipschitz, solver=solver, **floors)
        for solver in {"paper", "exact", rule.solver}
    }
    chosen = by_solver[rule.solver]
    if rule.strength != 1.0:
        chosen = sampling_probabilities(target, local, lipschitz, solver=rule.solver, strength=rule.strength, **floors)
    known = np.asarray(np.isfinite(lipschitz).any(axis=1))

    def factor(q: Array) -> Array:
        return np.where(known, rho(q, target, lipschitz), np.nan)

    return Renewal(
        probabilities=np.where(known[:, None], chosen, used),
        rho=Rho(factor(used), factor(by_solver["paper"]), factor(by_solver["exact"])),
    )
