"""What a federation is told once: seed, scheme, training, target, BatchNorm policy."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from isfl.data.transforms import AnyTransform
from isfl.federation.sampling_rules.isfl import ImportanceSampling
from isfl.federation.schedules import Constant, Schedule, Step, learning_rate_factor
from isfl.federation.scheme import Scheme
from isfl.schema import Part, default_choice
from isfl.smoothness import Method
from isfl.theory.arrays import shares


class Adam(Part):
    """The paper's choice; its state is new every round."""

    kind: Literal["adam"] = "adam"
    lr: float = Field(1e-3, gt=0, le=1000, description="learning rate")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean of gradients")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the mean of squared gradients")
    weight_decay: float = Field(0.0, ge=0, description="so many times the weights are added to the gradient")


class SGD(Part):
    """Plain gradient steps, what Theorem 1 is about; its momentum is new every round."""

    kind: Literal["sgd"] = "sgd"
    lr: float = Field(0.01, gt=0, le=1000, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="share of the last step that is kept")
    weight_decay: float = Field(0.0, ge=0, description="so many times the weights are added to the gradient")


Optimizer = Annotated[
    Annotated[Adam | SGD, Field(discriminator="kind")],
    default_choice("kind", "adam"),
]


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
    optimizer: Optimizer = Adam()
    schedule: Schedule = Constant()
    initial_models: Literal["shared", "independent"] = Field(
        "shared",
        description="what clients start the first round from: the server's model, or each from random weights of its "
        "own (the authors' code)",
    )
    evaluate_every: int = Field(
        1, ge=1, description="measure accuracy every so many rounds (and after the last): it costs a pass over all data"
    )
    batchnorm: Literal["average", "local", "group"] = Field(
        "average",
        description="BatchNorm statistics: averaged like parameters, kept local "
        "(the server re-estimates its own on the public set), or GroupNorm in place of every BatchNorm",
    )
    convolutions: Literal["fast", "torch"] = Field(
        "fast",
        description="3x3 convolutions on a CPU: with fewer multiplications, compiled when first used "
        "(as torch does them where there is no C compiler), or always as torch does them",
    )

    @model_validator(mode="after")
    def _schedule_starts(self) -> Training:
        if isinstance(self.schedule, Step) and self.schedule.every >= self.rounds:
            raise ValueError(
                f"schedule.every is {self.schedule.every} and rounds is {self.rounds}: the learning rate would never "
                "change; lower training.schedule.every or leave training.schedule out"
            )
        return self

    def optimizer_in(self, round: int) -> Optimizer:
        """The optimiser with the learning rate that the schedule gives it in this round."""
        factor = learning_rate_factor(self.schedule, round, self.rounds)
        return self.optimizer.model_copy(update={"lr": self.optimizer.lr * factor})


class GlobalTarget(Part):
    """The class shares of all clients' data together; clients send their class counts."""

    kind: Literal["global"] = "global"


class UniformTarget(Part):
    """All classes alike; needs no counts from anybody."""

    kind: Literal["uniform"] = "uniform"


class LocalTarget(Part):
    """Personalisation: each client aims at its own mix, or at a blend of it with the global shares.

    `p = weight * local + (1 - weight) * global`, one vector per client (the paper's remark in Section V-B).
    """

    kind: Literal["local"] = "local"
    weight: float = Field(1.0, ge=0, le=1, description="1: each client's own mix; 0: the global shares")


class GivenTarget(Part):
    """A vector for all clients, or one vector per client (personalisation)."""

    kind: Literal["given"] = "given"
    shares: list[float] | list[list[float]] = Field(description="numbers that sum to 1, in the order of the classes")

    @field_validator("shares")
    @classmethod
    def _are_shares(cls, value: list[float] | list[list[float]]) -> object:
        if len({len(row) for row in value if isinstance(row, list)}) > 1:
            raise ValueError("the rows have different lengths")
        shares("shares", np.asarray(value, dtype=float))
        return value


class NoisedTarget(Part):
    """Global shares from class counts to which each client adds Laplace noise of scale 2/epsilon before sending.

    The number of samples is known, so two data sets are neighbours when one label differs: the counts then differ
    by 2 in sum, and a client's counts are epsilon-differentially private.
    """

    kind: Literal["noised"] = "noised"
    epsilon: float = Field(gt=0, description="the smaller, the more private and the further off")


Target = Annotated[GlobalTarget | UniformTarget | LocalTarget | GivenTarget | NoisedTarget, Field(discriminator="kind")]


class Diagnostics(Part):
    """What is measured although the scheme itself does not need it."""

    lipschitz: bool = Field(False, description="measure L and rho for every scheme; ISFL always does")
    bound: bool = Field(
        False,
        description="measure both sides of Lemma 1 and of Theorem 1 (needs L, so it measures that too): clients report "
        "gradient norms and variances, the server computes gradients on the public set",
    )


class Settings(Part):
    """Everything the functions of this room need to know."""

    seed: int = Field(0, ge=0, lt=2**63, description="of everything random: split, model, draws, participation")
    scheme: Scheme = Field(default_factory=lambda: Scheme.model_validate("isfl"))
    training: Training = Training()
    target: Target = GlobalTarget()
    diagnostics: Diagnostics = Diagnostics()

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
    def estimator(self) -> Method:
        """How Lipschitz values are measured; diagnostics take the definition."""
        return "exact" if self.importance_sampling is None else self.importance_sampling.estimator

    @property
    def hides_counts(self) -> bool:
        """Whether the server never sees exact class counts."""
        return self.solves_at_client or isinstance(self.target, NoisedTarget)

    @model_validator(mode="after")
    def _possible(self) -> Settings:
        rule = self.importance_sampling
        if rule is not None and rule.where == "client" and isinstance(self.target, GlobalTarget | LocalTarget):
            raise ValueError(
                f"scheme.sampling.where = 'client' keeps class counts private, so target.kind = {self.target.kind!r} "
                "cannot be computed; use 'uniform', 'given' or 'noised'"
            )
        if rule is not None and rule.where == "server" and isinstance(self.target, NoisedTarget):
            raise ValueError(
                "target.kind = 'noised' hides class counts that scheme.sampling.where = 'server' needs; "
                "use where = 'client', or another target"
            )
        if (self.diagnostics.lipschitz or self.diagnostics.bound) and self.hides_counts and rule is None:
            name = "bound" if self.diagnostics.bound else "lipschitz"
            raise ValueError(
                f"diagnostics.{name} = true needs class counts at the server, which target.kind = 'noised' hides"
            )
        return self
