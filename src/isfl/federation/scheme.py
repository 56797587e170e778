"""A scheme is three independent choices: how clients sample, what they minimise, how the server aggregates.

The names of the literature (`fedavg`, `isfl`, `moon`, ...) are shorthands for three such parts, and any part can
be replaced: `scheme = {name = "isfl", objective = {kind = "moon"}}` is ISFL with MOON's objective.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from isfl.schema import Part
from isfl.smoothness import Method
from isfl.theory.probabilities import SolverName

# ---------------------------------------------------------------- how a client samples


class Shuffle(Part):
    """FedAvg: every sample once an epoch, in random order, without replacement."""

    rule: Literal["shuffle"] = "shuffle"


class UniformClasses(Part):
    """Uniform-IS (also RW-IS): all classes the client holds with equal probability."""

    rule: Literal["uniform"] = "uniform"


class TargetShares(Part):
    """`p_j`-IS: the target shares, restricted to the classes the client holds.

    Not `normalised`, the weight `p_i` is given to every sample without dividing by the client's own share: `q_i` is
    then proportional to `p^k_i p_i`, which for a balanced target is the local mix.
    """

    rule: Literal["target"] = "target"
    normalised: bool = Field(True, description="false: weigh samples by p_i alone, so that q_i ~ p^k_i p_i")


class Tempered(Part):
    """`q_i` proportional to `(p^k_i)^(1 - temperature)`: 0 is the local mix, 1 uniform over classes."""

    rule: Literal["tempered"] = "tempered"
    temperature: float = Field(0.75, ge=0, le=1, description="how far towards uniform")


class GradientNorm(Part):
    """ISFedAvg: every sample by its gradient norm at the global model, refreshed each round.

    `unbiased`, the loss of a sample drawn with probability `s_i` is weighed by `1 / (N s_i)`, so that the mean
    gradient stays that of the local data, as Rizk et al. (2021) assume. The ISFL paper does not say so.
    """

    rule: Literal["gradient-norm"] = "gradient-norm"
    unbiased: bool = Field(False, description="weigh the loss of a sample by one over N times its probability")


class ImportanceSampling(Part):
    """ISFL: probabilities from target shares and Lipschitz values, renewed each round."""

    rule: Literal["isfl"] = "isfl"
    solver: SolverName = Field(
        "paper", description="the paper's rule, or the exact minimum of rho, which needs a target_floor to be a policy"
    )
    floor: float = Field(0.05, ge=0, le=1, description="lowest IS weight: q_i >= floor * p^k_i")
    target_floor: float = Field(0.0, ge=0, le=1, description="q_i >= target_floor * p_i")
    estimator: Method = Field(
        "exact",
        description="how L is measured: by its definition, on class means, or on the output layer alone (cheapest)",
    )
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


Sampling = Annotated[
    Shuffle | UniformClasses | TargetShares | Tempered | GradientNorm | ImportanceSampling,
    Field(discriminator="rule"),
]

# ---------------------------------------------------------------- what a client minimises


class _Objective(Part):
    calibrate: bool = Field(False, description="add log(q_i / p_i) to the logits in training (prior calibration)")


class CrossEntropy(_Objective):
    """The plain loss."""

    kind: Literal["cross-entropy"] = "cross-entropy"


class FedProx(_Objective):
    """`+ mu/2 ||theta - theta_global||^2`."""

    kind: Literal["fedprox"] = "fedprox"
    mu: float = Field(0.2, ge=0, description="weight of the term")


class Moon(_Objective):
    """A contrastive term: representations close to the global model's, far from the previous local model's."""

    kind: Literal["moon"] = "moon"
    mu: float = Field(1.0, ge=0, description="weight of the term")
    tau: float = Field(0.5, gt=0, description="temperature of the contrast")
    representation: Literal["features", "logits"] = Field(
        "features",
        description="what is compared: the input of the output layer, as in the MOON paper, or its output (ISFL's "
        "authors' code for ResNet9)",
    )


Objective = Annotated[CrossEntropy | FedProx | Moon, Field(discriminator="kind")]

# ---------------------------------------------------------------- how the server aggregates


class _Weighted(Part):
    weights: Literal["size", "client"] = Field("size", description="weigh clients by their samples, or equally")


class Mean(_Weighted):
    """FedAvg's weighted mean of the clients' models."""

    rule: Literal["mean"] = "mean"


class ServerMomentum(_Weighted):
    """FedAvgM: the mean update goes through a momentum buffer."""

    rule: Literal["momentum"] = "momentum"
    lr: float = Field(1.0, gt=0, le=1000, description="learning rate of the server")
    momentum: float = Field(0.9, ge=0, lt=1, description="share of the last step that is kept")


class ServerAdam(_Weighted):
    """FedAdam: the mean update is the gradient of an Adam step without bias correction."""

    rule: Literal["adam"] = "adam"
    lr: float = Field(0.01, gt=0, le=1000, description="learning rate of the server")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean of updates")
    beta2: float = Field(0.99, ge=0, lt=1, description="decay of the mean of squared updates")
    tau: float = Field(1e-3, gt=0, description="added to the root: the smaller, the more adaptive")


class Median(Part):
    """Coordinate-wise median of the clients' models, each counted once."""

    rule: Literal["median"] = "median"


class TrimmedMean(Part):
    """Coordinate-wise mean without the `trim` share of smallest and of largest values."""

    rule: Literal["trimmed-mean"] = "trimmed-mean"
    trim: float = Field(0.1, ge=0, lt=0.5, description="share left out on either side")


Aggregation = Annotated[Mean | ServerMomentum | ServerAdam | Median | TrimmedMean, Field(discriminator="rule")]

# ---------------------------------------------------------------- the three together

SHORTHANDS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "uniform-is": {"sampling": {"rule": "uniform"}},
    "pj-is": {"sampling": {"rule": "target"}},
    "pj-unnormalised": {"sampling": {"rule": "target", "normalised": False}},
    "isfedavg": {"sampling": {"rule": "gradient-norm"}},
    "isfl": {"sampling": {"rule": "isfl"}},
    "fedprox": {"objective": {"kind": "fedprox"}},
    "moon": {"objective": {"kind": "moon"}},
    "tempered": {"sampling": {"rule": "tempered", "temperature": 0.75}},
    "calibrated": {"sampling": {"rule": "tempered", "temperature": 0.5}, "objective": {"calibrate": True}},
    "centralized": {"pooled": True},
}
"""What each name stands for; parts not named are FedAvg's."""

_DEFAULTS: dict[str, dict[str, Any]] = {
    "sampling": {"rule": "shuffle"},
    "objective": {"kind": "cross-entropy"},
    "aggregation": {"rule": "mean"},
}

_SHARED = frozenset({"calibrate", "weights"})
"""What every kind of a part has, and a change of kind keeps: `calibrated` with FedProx stays calibrated."""


class Scheme(Part):
    """Sampling x objective x aggregation, under a name."""

    name: str = Field("fedavg", description="a shorthand, whose parts hold where none is given")
    sampling: Sampling
    objective: Objective
    aggregation: Aggregation
    pooled: bool = Field(False, description="one client that holds everybody's data: the centralised reference")

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, given: Any) -> Any:
        """Fill the parts in from the shorthand, then let the given ones override them key by key."""
        if isinstance(given, str):
            given = {"name": given}
        if not isinstance(given, dict):
            return given
        name = given.get("name", "fedavg")
        if not isinstance(name, str) or name not in SHORTHANDS:
            raise ValueError(f"unknown scheme {name!r}; choose one of {', '.join(SHORTHANDS)}")
        short = SHORTHANDS[name]
        result: dict[str, Any] = {"pooled": short.get("pooled", False), **given, "name": name}
        for part, default in _DEFAULTS.items():
            base = {**default, **short.get(part, {})}
            override = given.get(part, {})
            if isinstance(override, dict):
                choice = next(iter(default))  # the key that tells which kind it is
                if choice in override and override[choice] != base[choice]:
                    base = {key: base[key] for key in base.keys() & _SHARED}
                result[part] = {**base, **override}
        return result
