"""The settings of a federation: seed, scheme, training, target, BatchNorm policy, simulated attack, stragglers."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from isfl.data.transforms import AnyTransform
from isfl.federation.aggregations.base import WeightedMean
from isfl.federation.attacks import AnyAttack, Attack
from isfl.federation.attacks.none import NoAttack
from isfl.federation.optimizers import AnyOptimizer, Optimizer
from isfl.federation.optimizers.adam import Adam
from isfl.federation.privacy import Privacy
from isfl.federation.sampling_rules.isfl import ImportanceSampling
from isfl.federation.schedules import AnySchedule, Constant
from isfl.federation.scheme import Scheme
from isfl.federation.secure.settings import SecureAggregation
from isfl.federation.stragglers import Stragglers
from isfl.federation.targets import TARGETS, AnyTarget, GlobalTarget
from isfl.schema import Part

MOST_LISTED = 10_000
"""With more clients than this, nothing is recorded that has one entry for every client."""


class Training(Part):
    """Local training and rounds; the defaults are the paper's."""

    rounds: int = Field(25, ge=1, description="T_G, rounds of local training and aggregation")
    local_epochs: int = Field(5, ge=1, description="E_l, epochs each client trains a round")
    batch_size: int = Field(128, ge=1, description="samples of a gradient step")
    drop_last: bool = Field(
        False, description="leave the last incomplete batch out (in the authors' code ISFL does, FedAvg does not)"
    )
    augment: list[AnyTransform] = Field(
        default_factory=list,
        description="random changes to training inputs, in this order: each a kind (`crop`), a table with settings "
        "(`{kind = 'crop', padding = 2}`), or `module:function`, called with a batch and a torch.Generator",
    )
    sampling_ratio: float = Field(1.0, gt=0, le=1, description="SR: an epoch draws floor(SR * |D_k|) samples")
    participation: float = Field(1.0, gt=0, le=1, description="share of the clients that take part in a round")
    optimizer: AnyOptimizer = Adam()
    schedule: AnySchedule = Constant()
    initial_models: Literal["shared", "independent"] = Field(
        "shared",
        description="what clients start the first round from: the server's model, or each from random weights of its "
        "own (the authors' code)",
    )
    evaluate_every: int = Field(
        1,
        ge=1,
        description="rounds from one evaluation to the next, each on D_S and on data of clients (`evaluate_clients`); "
        "the last round has one",
    )
    evaluate_clients: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the clients that evaluate the model on their data in such a round, chosen at random; "
        f"none: all clients, or with more than {MOST_LISTED:,} as many as take part in a round",
    )
    batchnorm: Literal["average", "local", "group"] = Field(
        "average",
        description="BatchNorm statistics: averaged like parameters, kept local "
        "(the server re-estimates its own on the public set), or GroupNorm in place of every BatchNorm",
    )
    convolutions: Literal["fast", "torch"] = Field(
        "fast",
        description="3x3 convolutions on a CPU: with fewer multiplications, compiled when first used, and BatchNorm in "
        "training in one pass with ReLU and pooling (as torch does them where there is no C compiler); or all as torch "
        "does them",
    )

    @model_validator(mode="after")
    def _schedule_fits(self) -> Training:
        self.schedule.check(self.rounds)
        return self

    def optimizer_in(self, round: int) -> Optimizer:
        """Return the optimiser with the learning rate of this round."""
        factor = self.schedule.multiplier(round, self.rounds)
        return self.optimizer.model_copy(update={"lr": self.optimizer.lr * factor})


class Diagnostics(Part):
    """Measurements that the scheme itself does not need."""

    lipschitz: bool = Field(False, description="measure L and rho for every scheme; ISFL always does")
    bound: bool = Field(
        False,
        description="measure both sides of Lemma 1 and of Theorem 1 (needs L, so it measures that too): clients report "
        "gradient norms and variances, the server computes gradients on the public set",
    )


class Settings(Part):
    """Everything that the functions of `isfl.federation` depend on."""

    seed: int = Field(0, ge=0, lt=2**63, description="of everything random: split, model, draws, participation")
    scheme: Scheme = Field(default_factory=lambda: Scheme.model_validate("isfl"))
    training: Training = Training()
    target: AnyTarget = GlobalTarget()
    diagnostics: Diagnostics = Diagnostics()
    privacy: Privacy | None = Field(None, description="off without this table")
    secure: SecureAggregation | None = Field(None, description="off without this table")
    attack: AnyAttack = NoAttack()
    stragglers: Stragglers | None = Field(None, description="off without this table: a round waits for every client")

    @property
    def importance_sampling(self) -> ImportanceSampling | None:
        """The ISFL rule, if that is how clients sample."""
        rule = self.scheme.sampling
        return rule if isinstance(rule, ImportanceSampling) else None

    @property
    def solves_at_client(self) -> bool:
        """Private ISFL: clients find their own probabilities."""
        rule = self.importance_sampling
        return rule is not None and rule.where == "client"

    @property
    def measures_at_client(self) -> bool:
        """Whether clients measure their own Lipschitz values, too."""
        rule = self.importance_sampling
        return rule is not None and rule.lipschitz_at == "client"

    @property
    def measures_lipschitz(self) -> bool:
        """Whether the server compares local models with the global one."""
        wanted = self.importance_sampling is not None or self.diagnostics.lipschitz or self.diagnostics.bound
        return wanted and not self.measures_at_client

    @property
    def estimator(self) -> str:
        """The name of the estimator of Lipschitz values; diagnostics use the definition."""
        return "exact" if self.importance_sampling is None else self.importance_sampling.estimator

    @property
    def hides_counts(self) -> bool:
        """Whether the server never sees exact class counts."""
        protected = self.protects_at_client or self.secure is not None
        private = self.scheme.sampling.keeps_counts or (protected and self.importance_sampling is None)
        kept = private and not self.target.needs_exact_counts
        return kept or self.solves_at_client or self.target.count_epsilon is not None

    @property
    def protects_at_client(self) -> bool:
        """Whether clients add noise to what they send."""
        return self.privacy is not None and self.privacy.at == "client"

    @model_validator(mode="after")
    def _private(self) -> Settings:
        """Refuse what would leave the clients without the guarantee of `privacy`."""
        if self.privacy is None:
            return self
        if self.target.needs_exact_counts or self.target.count_epsilon is not None:
            raise ValueError(
                f"privacy: target.kind = {self.target.kind!r} is computed from the clients' labels, which it would "
                "reveal; use 'uniform' or 'given'"
            )
        aggregation = self.scheme.aggregation
        fair = isinstance(aggregation, WeightedMean) and aggregation.weights == "client"
        if not fair or aggregation.screens:
            raise ValueError(
                f"privacy: scheme.aggregation.rule = {aggregation.rule!r} must be a mean in which every client counts "
                "the same: use 'mean', 'momentum' or 'adam' with weights = 'client'"
            )
        if self.privacy.at == "client":
            for unprotected, what in (
                (not self.hides_counts, "scheme.sampling.where = 'server' sends class counts"),
                (
                    self.measures_at_client and self.secure is None,
                    "scheme.sampling.lipschitz_at = 'client' sends Lipschitz values",
                ),
                (self.diagnostics.bound, "diagnostics.bound = true sends norms of gradients"),
            ):
                if unprotected:
                    raise ValueError(f"privacy.at = 'client': {what} without protection")
        return self

    @model_validator(mode="after")
    def _has_clients_to_ask(self) -> Settings:
        over = 0.0 if self.stragglers is None else self.stragglers.over_selection
        participation = self.training.participation
        if over and participation * (1 + over) > 1 + 1e-9:
            raise ValueError(
                f"stragglers.over_selection = {over:g} with training.participation = {participation:g} asks more "
                f"clients than there are; use a participation of at most {math.floor(1000 / (1 + over)) / 1000:g}"
            )
        return self

    @model_validator(mode="after")
    def _secure(self) -> Settings:
        """Refuse what needs single updates, or class counts, at the server."""
        if self.secure is None:
            return self
        rule, aggregation, attack = self.importance_sampling, self.scheme.aggregation, self.attack
        for refused, what, remedy in (
            (
                rule is not None and not self.measures_at_client,
                "scheme.sampling.lipschitz_at = 'server' compares single local models",
                "use where = 'client' and lipschitz_at = 'client'",
            ),
            (
                self.target.needs_exact_counts,
                f"target.kind = {self.target.kind!r} needs the class counts of single clients",
                f"use {_without_exact_counts()}",
            ),
            (
                not isinstance(aggregation, WeightedMean) or aggregation.screens,
                f"scheme.aggregation.rule = {aggregation.rule!r} looks at single updates",
                "use 'mean', 'momentum' or 'adam'",
            ),
            (self.diagnostics.lipschitz, "diagnostics.lipschitz = true compares single local models", "leave it out"),
            (self.diagnostics.bound, "diagnostics.bound = true looks at single updates", "leave it out"),
            (
                self.privacy is not None and self.privacy.at == "server",
                "privacy.at = 'server' clips single updates",
                "use at = 'client'",
            ),
            (
                type(attack).crafted is not Attack.crafted,
                f"attack.kind = {attack.kind!r} looks at single updates",
                "use 'label-flip', or leave [attack] out",
            ),
        ):
            if refused:
                raise ValueError(f"secure: {what}, which the server does not see; {remedy}")
        return self

    @model_validator(mode="after")
    def _has_somebody_to_attack(self) -> Settings:
        if self.scheme.pooled and not isinstance(self.attack, NoAttack):
            raise ValueError(
                f"attack.kind = {self.attack.kind!r} needs clients, and scheme.pooled = true has one that holds all "
                "data; leave [attack] out"
            )
        return self

    @model_validator(mode="after")
    def _possible(self) -> Settings:
        rule = self.importance_sampling
        if rule is not None and rule.where == "client" and self.target.needs_exact_counts:
            raise ValueError(
                f"scheme.sampling.where = 'client' keeps class counts private, so target.kind = {self.target.kind!r} "
                f"cannot be computed; use {_without_exact_counts()}"
            )
        if rule is not None and rule.where == "server" and self.target.count_epsilon is not None:
            raise ValueError(
                f"target.kind = {self.target.kind!r} hides class counts that scheme.sampling.where = 'server' needs; "
                "use where = 'client', or another target"
            )
        measured = self.diagnostics.lipschitz or self.diagnostics.bound
        if measured and self.target.count_epsilon is not None and rule is None:
            name = "bound" if self.diagnostics.bound else "lipschitz"
            raise ValueError(
                f"diagnostics.{name} = true needs class counts at the server, which target.kind = {self.target.kind!r} "
                "hides"
            )
        return self


def _without_exact_counts() -> str:
    """Name the targets that need no class counts of single clients."""
    return " or ".join(repr(kind.model_fields["kind"].default) for kind in TARGETS if not kind.needs_exact_counts)
