"""Client-level differential privacy: updates clipped to a norm, Gaussian noise on their sum or on each of them.

H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018.
With `delta^k = theta^k - theta` the update of client k, `S` the clipping norm, `z` the noise multiplier and `m` the
number of answers that a round needs,

    theta' = theta + 1/m (sum_k min(1, S / ||delta^k||) delta^k + z S N(0, I)),

or each client adds `z S N(0, I)` to its own clipped update and the server takes the mean.

Two federations are neighbours if the data of one client differ. A sum of clipped updates then differs by at most `2 S`,
so that one round is a Gaussian mechanism with noise `z / 2` times its sensitivity. Clients draw by class from their own
data: that is part of what a client computes, it is covered whatever the sampling rule is, and it amplifies nothing.

If a round asks more clients than it needs, the sum is over the first `m` usable answers. The data may also change how
fast their client is. It then takes the place of one other client or leaves its place to one: the sum still differs by
at most `2 S`. Every client that was asked may be in the sum, so the accountant counts all of them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isfl.errors import UserError
from isfl.federation.values import ClientUpdate, Weights
from isfl.randomness import Noise, Purpose, SystemNoise, generator
from isfl.schema import Part

MOST_NOISE = 1e6


class Privacy(Part):
    """Differential privacy for whole clients. `epsilon` of every round is in the metrics."""

    clip: float = Field(ge=1e-6, le=1e6, description="S: longer updates of clients are shortened to this norm")
    noise: float = Field(ge=0.01, le=MOST_NOISE, description="z: standard deviation of the noise, in units of `clip`")
    at: Literal["server", "client"] = Field(
        "server", description="who adds noise: a trusted server to the sum, or each client to its own update"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="the probability with which the guarantee may fail")
    epsilon: float | None = Field(
        None, gt=0, description="a budget for all rounds: a run that would spend more is refused before it starts"
    )
    amplified: bool = Field(
        False,
        description="count the random choice of clients as a source of privacy, which it is only against those who do "
        "not know the seed",
    )


def check_model(model: Weights, parameters: frozenset[str], statistics: frozenset[str]) -> None:
    """Refuse a model with buffers that would be averaged: they are functions of data, and noise would spoil them."""
    buffers = sorted(model.keys() - parameters - statistics)
    if buffers:
        raise UserError(
            f"privacy: the model has buffers ({buffers[0]}, ...) that clients would send without protection; use "
            'training.batchnorm = "local" or "group"'
        )


def clipped_difference(local: Weights, current: Weights, clip: float) -> Weights:
    """Return `min(1, S / ||delta||) delta` in double precision; 0 if training diverged.

    Numbers that are not finite would pass through the noise, and say so.
    """
    difference = {name: value.double() - current[name].double() for name, value in local.items()}
    norm = math.sqrt(sum(float(value.square().sum()) for value in difference.values()))
    if not math.isfinite(norm):
        return {name: torch.zeros_like(value) for name, value in difference.items()}
    factor = min(1.0, clip / norm) if norm > 0 else 1.0
    return {name: value * factor for name, value in difference.items()}


def noised_update(local: Weights, current: Weights, privacy: Privacy, noise: Noise) -> Weights:
    """Return what a client sends instead of its model: the global one plus its clipped and noised update."""
    difference = clipped_difference(local, current, privacy.clip)
    return _moved(current, _with_noise(difference, privacy, noise), 1)


def noised_mean(
    current: Weights, updates: Sequence[ClientUpdate], privacy: Privacy, needed: int, noise: Noise
) -> ClientUpdate:
    """Return one update in the place of all: the noised sum of clipped updates over the number of answers needed.

    A missing answer counts as a client that did not move: who answered must not change the scale of the noise.
    """
    total: Weights = {}
    for update in updates:
        difference = clipped_difference(update.model, current, privacy.clip)
        total = {name: value + total[name] if total else value for name, value in difference.items()}
    return replace(updates[0], model=_moved(current, _with_noise(total, privacy, noise), needed))


def privacy_noise(seed: int, round: int, client: int = 0, *, real: bool) -> Noise:
    """Return the source of a round's noise.

    A simulation repeats it. For real clients it is fresh: everyone who knows the seed could subtract the noise.
    """
    if real:
        return SystemNoise()
    return generator(seed, Purpose.PRIVACY_NOISE, round=round, client=client)


def _with_noise(values: Weights, privacy: Privacy, noise: Noise) -> Weights:
    scale = privacy.noise * privacy.clip

    def drawn(value: Tensor) -> Tensor:
        return torch.from_numpy(noise.standard_normal(value.numel()) * scale).reshape(value.shape)

    return {name: values[name] + drawn(values[name]) for name in sorted(values)}


def _moved(current: Weights, total: Weights, count: int) -> Weights:
    return {name: (current[name].double() + value / count).to(current[name].dtype) for name, value in total.items()}


# ---------------------------------------------------------------- what it costs


@dataclass(frozen=True)
class Use:
    """How often the data of clients were used."""

    rounds: int
    each: int
    """Clients that a round asks."""
    most: int
    """Rounds that asked the client that was asked most often."""
    repeated: int = 0
    """Rounds that an interruption repeated with fresh noise: each may have asked any client once more."""


def spent_epsilon(privacy: Privacy, clients: int, use: Use) -> float:
    """Return the epsilon, at `privacy.delta`, of the client that was asked most often.

    If the choice of clients is public, a client's data are at risk only in the rounds that ask it, each a Gaussian
    mechanism; `amplified` counts all rounds, each with a secret choice. That choice cannot cost privacy, so the smaller
    of the two holds.
    """
    if not use.most + use.repeated:
        return 0.0
    public = gaussian_epsilon(privacy.noise / 2, privacy.delta, use.most + use.repeated)
    if privacy.amplified and privacy.at == "server" and use.each < clients:
        rounds = use.rounds + use.repeated
        return min(public, _amplified_epsilon(privacy.noise / 2, privacy.delta, clients, use.each, rounds))
    return public


@cache
def gaussian_epsilon(multiplier: float, delta: float, times: int) -> float:
    """Return the exact epsilon of a Gaussian mechanism that is used some times.

    Its noise is `multiplier` times its sensitivity. Used n times it equals one with noise smaller by `sqrt(n)`
    (J. Dong, A. Roth, W. J. Su, "Gaussian Differential Privacy", JRSS B 2022); the epsilon of one is that of
    B. Balle, Y.-X. Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018.
    """
    with np.errstate(divide="ignore"):  # noise that is enough for epsilon = 0
        return float(_library().get_epsilon_gaussian(multiplier / math.sqrt(times), delta))


@cache
def _amplified_epsilon(multiplier: float, delta: float, clients: int, chosen: int, rounds: int) -> float:
    """Return epsilon with clients chosen at random, without replacement, by Renyi divergences.

    Y.-X. Wang, B. Balle, S. Kasiviswanathan, "Subsampled Renyi Differential Privacy and Analytical Moments Accountant",
    AISTATS 2019.
    """
    library = _library()
    accountant = library.rdp.RdpAccountant(neighboring_relation=library.NeighboringRelation.REPLACE_ONE)
    event = library.SampledWithoutReplacementDpEvent(clients, chosen, library.GaussianDpEvent(multiplier))
    return float(accountant.compose(event, rounds).get_epsilon(delta))


def check_budget(privacy: Privacy, clients: int, use: Use) -> None:
    """Refuse a run whose rounds spend more than `privacy.epsilon`; say which noise would do."""
    spent = spent_epsilon(privacy, clients, use)
    if privacy.epsilon is None or spent <= privacy.epsilon:
        return

    def enough(noise: float) -> bool:
        public, asked = (
            privacy.model_copy(update={"noise": noise, "amplified": amplified})
            for amplified in (False, privacy.amplified)
        )
        return any(spent_epsilon(one, clients, use) <= (privacy.epsilon or 0.0) for one in (public, asked))

    low, high = privacy.noise, MOST_NOISE
    advice = "no noise is enough: use a larger privacy.epsilon or privacy.delta, or fewer rounds"
    if enough(high):
        while high - low > max(0.005, 1e-4 * high):
            middle = (low + high) / 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        advice = f"set privacy.noise to {math.ceil(100 * high) / 100:.12g} or more"
    repeated = f" and {use.repeated} repeated after an interruption" if use.repeated else ""
    raise UserError(
        f"privacy.epsilon = {privacy.epsilon:g} cannot be met: {use.rounds} rounds{repeated} with privacy.noise = "
        f"{privacy.noise:g} spend {spent:.2f}; {advice}"
    )


def _library() -> Any:
    try:
        return importlib.import_module("dp_accounting")
    except ImportError:
        raise UserError("privacy needs dp-accounting, which computes epsilon: pip install 'isfl[privacy]'") from None
