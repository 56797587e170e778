"""Diagnose a federation from its class counts: how skewed it is, and what sampling by class can gain in theory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from isfl.data.counts import ClassCounts
from isfl.diagnose.advice import FLOOR, TARGET_FLOOR, Advice, advise
from isfl.diagnose.evidence import skew_beyond_chance
from isfl.federation.sampling_rules import Known
from isfl.federation.sampling_rules.isfl import ImportanceSampling
from isfl.federation.scheme import Scheme
from isfl.federation.targets import GlobalTarget, Target
from isfl.federation.values import ClientProfile
from isfl.theory import SkewCard, effective_sample_size, rho, sampling_probabilities, skew_card
from isfl.theory.arrays import Array
from isfl.theory.drivers import Drivers, skew_drivers

BY_COUNTS = ("fedavg", "uniform-is", "pj-is", "tempered", "adaptive")
"""Schemes whose sampling probabilities depend only on counts, target and the length of training."""
ISFL, MINIMUM, ADVISED = "isfl", "minimum", "isfl-advised"
FLOORS = (0.0, 0.01, 0.05, 0.2, 0.5)


@dataclass(frozen=True)
class Question:
    """The setting under which a federation is diagnosed."""

    target: Target = field(default_factory=GlobalTarget)
    rule: ImportanceSampling = field(default_factory=ImportanceSampling)
    lipschitz: Array | None = None
    """(K, C) Lipschitz values L; None: the same for all classes."""
    public: int = 500
    """Samples in the public set on which a run would measure L."""
    passes: float = 5.0
    """Draws of a round per local sample: the local epochs times the sampling ratio."""


@dataclass(frozen=True)
class Draws:
    """One scheme in theory; means over clients are weighted by their samples."""

    scheme: str
    rho: float
    """The mean of `rho(q^k)`, the factor of the convergence bound that depends on sampling."""
    distance: float
    """The mean of `||p - q^k||^2`."""
    effective: float
    """Effective sample size of all clients' draws, as a share of their samples."""
    largest: float
    """The mean of the largest probability a client gives to a class."""


@dataclass(frozen=True)
class FloorEffect:
    """The paper's solver and the exact one at the same floor."""

    floor: float
    paper: Draws
    exact: Draws


@dataclass(frozen=True)
class Diagnosis:
    """The result that text, tables, picture and JSON are made from."""

    federation: ClassCounts
    question: Question
    card: SkewCard
    drivers: Drivers
    draws: dict[str, Draws]
    floors: tuple[FloorEffect, ...]
    out_of_reach: float
    """The mean share of the target in classes a client does not hold; no sampling can draw those."""
    extra_gradients: float
    """Gradients that ISFL needs for L in a round, per gradient of training."""
    advice: Advice


def diagnose(federation: ClassCounts, question: Question) -> Diagnosis:
    """Diagnose a federation before any training."""
    counts = federation.counts
    lipschitz = np.ones_like(counts) if question.lipschitz is None else question.lipschitz
    world = _World(counts, _target(federation, question.target), lipschitz / np.nanmax(lipschitz))
    rule, drivers = question.rule, skew_drivers(counts)
    draws = {name: world.by_counts(name, question.passes) for name in BY_COUNTS}
    draws[ISFL] = world.isfl(ISFL, rule.solver, rule.floor, rule.target_floor)
    draws[ADVISED] = world.isfl(ADVISED, "paper", FLOOR, TARGET_FLOOR)
    draws[MINIMUM] = world.isfl(MINIMUM, "exact", rule.floor, rule.target_floor)
    return Diagnosis(
        federation=federation,
        question=question,
        card=skew_card(counts),
        drivers=drivers,
        draws=draws,
        floors=tuple(
            FloorEffect(floor, world.isfl("paper", "paper", floor, 0.0), world.isfl("exact", "exact", floor, 0.0))
            for floor in FLOORS
        ),
        out_of_reach=float(world.weights @ np.where(counts == 0, world.target, 0.0).sum(axis=1)),
        extra_gradients=(len(counts) + 1) * question.public / (question.passes * counts.sum()),
        advice=advise(
            distance=draws["fedavg"].distance,
            chance=drivers.chance,
            reached=draws["pj-is"].distance,
            skew=skew_beyond_chance(counts),
        ),
    )


def _target(federation: ClassCounts, target: Target) -> Array:
    """Return the (K, C) target shares that a run would use."""
    profiles = [ClientProfile(k, int(row.sum()), row) for k, row in enumerate(federation.counts)]
    return target.client_shares(profiles, len(federation.classes))


@dataclass(frozen=True)
class _World:
    """Counts, target and Lipschitz values, all (K, C)."""

    counts: Array
    target: Array
    lipschitz: Array

    @property
    def weights(self) -> Array:
        """(K,) `pi_k = n_k / N`."""
        sizes = self.counts.sum(axis=1)
        return sizes / sizes.sum()

    def by_counts(self, scheme: str, passes: float) -> Draws:
        rule = Scheme.model_validate(scheme).sampling
        known = (Known(n, p, 1, 1, passes) for n, p in zip(self.counts, self.target, strict=True))
        return self._worth(scheme, np.stack([rule.own_probabilities(one) for one in known]))

    def isfl(self, name: str, solver: str, floor: float, target_floor: float) -> Draws:
        local = self.counts / self.counts.sum(axis=1, keepdims=True)
        q = sampling_probabilities(
            self.target, local, self.lipschitz, floor=floor, target_floor=target_floor, solver=solver
        )
        return self._worth(name, q)

    def _worth(self, scheme: str, q: Array) -> Draws:
        return Draws(
            scheme=scheme,
            rho=float(self.weights @ np.asarray(rho(q, self.target, self.lipschitz))),
            distance=float(self.weights @ ((self.target - q) ** 2).sum(axis=1)),
            effective=float(effective_sample_size(self.counts, q).sum() / self.counts.sum()),
            largest=float(self.weights @ q.max(axis=1)),
        )
