"""The client's part of a round: introduce itself, train, and (private ISFL) renew its own probabilities.

Pure functions of the task, the client's data and memory, and the settings. The module passed in only holds the
weights while a function runs.
"""

from __future__ import annotations

import copy
import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from isfl.data.dataset import Dataset
from isfl.data.transforms import augmentation
from isfl.federation.initial import initialise
from isfl.federation.normalization import only, statistic_names, without
from isfl.federation.objectives import LocalTraining
from isfl.federation.privacy import noised_update, privacy_noise
from isfl.federation.sampling_rules import Known, LocalData, Stream
from isfl.federation.sampling_rules.isfl import renew
from isfl.federation.secure.client import masked_update
from isfl.federation.settings import Settings
from isfl.federation.training import Slots, epoch_size, train
from isfl.federation.values import (
    ClientMemory,
    ClientProfile,
    ClientUpdate,
    Observation,
    RenewalReport,
    RenewTask,
    TrainTask,
    Weights,
)
from isfl.randomness import Noise, Purpose, torch_randomness
from isfl.smoothness import estimate_lipschitz
from isfl.theory.arrays import Array
from isfl.theory.bias_variance import Moments


def introduce(client: int, data: Dataset, settings: Settings, noise: Noise) -> ClientProfile:
    """Return what the server learns at the start: class counts, noised counts, or none.

    `noise` must be the client's own secret in a deployment: a server that could repeat it could subtract it.
    """
    counts = data.class_counts.astype(np.float64)
    if settings.hides_counts and settings.target.count_epsilon is None:
        return ClientProfile(client, len(data), None)
    return ClientProfile(client, len(data), settings.target.sent_counts(counts, noise))


def train_client(
    model: nn.Module,
    task: TrainTask,
    data: Dataset,
    settings: Settings,
    memory: ClientMemory,
    *,
    real: bool = False,
) -> tuple[ClientUpdate, ClientMemory]:
    """Train one client for one round (Algorithm 2, lines 3 to 6).

    `real` says that the client is not simulated: noise that protects its data must not be repeatable.
    """
    scheme, training = settings.scheme, settings.training
    start = time.perf_counter()
    statistics = statistic_names(model) if training.batchnorm == "local" else frozenset[str]()
    model.load_state_dict({**task.model, **memory.statistics})
    if training.initial_models == "independent" and task.round == 1:
        initialise(model, settings.seed, task.client)

    counts = data.class_counts.astype(np.float64)
    size, stream = epoch_size(len(data), training.sampling_ratio), Stream(settings.seed, task.round, task.client)
    probabilities = _probabilities(task, counts, settings, memory)
    draws = scheme.sampling.draws(LocalData(model, data, probabilities, size, training.local_epochs, stream))
    sampling_seconds = time.perf_counter() - start

    hostile = settings.attack.is_hostile(settings.seed, task.client)
    local = LocalTraining(model, task.model, memory.local_model, draws.probabilities, task.target, counts)
    with (
        torch_randomness(settings.seed, Purpose.DROPOUT, round=task.round, client=task.client),
        scheme.objective.term(local) as term,
    ):
        result = train(
            model,
            settings.attack.poisoned(data) if hostile else data,
            training,
            Slots(
                draws=draws,
                augment=augmentation(training.augment, settings.seed, task.round, task.client),
                optimizer=training.optimizer_in(task.round),
                logit_shift=scheme.objective.logit_shift(local),
                term=term,
                measure_noise=settings.diagnostics.bound,
            ),
        )

    trained: Weights = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    sent = without(trained, statistics)
    if settings.privacy is not None and settings.protects_at_client:
        noise = privacy_noise(settings.seed, task.round, task.client, real=real)
        sent = noised_update(sent, task.model, settings.privacy, noise)
    update = ClientUpdate(
        client=task.client,
        num_samples=len(data),
        model=sent,
        train_loss=None if settings.protects_at_client else result.loss,
        training_evaluations=result.samples,
        sampling_evaluations=draws.evaluations,
        training_seconds=time.perf_counter() - start - sampling_seconds - result.noise_seconds,
        sampling_seconds=sampling_seconds,
        diagnostic_seconds=result.noise_seconds,
        gradient_norm=result.gradient_norm,
        gradient_variance=result.gradient_variance,
    )
    secret = memory.secret
    if settings.secure is not None:
        update, secret = masked_update(update, task, settings, secret)
    remembers = scheme.objective.keeps_local_model or settings.measures_at_client
    finite = all(bool(torch.isfinite(value).all()) for value in trained.values())
    return update, ClientMemory(
        # A model that diverged is refused by the server; remembered, it would spoil every round to come.
        local_model=(trained if finite else memory.local_model) if remembers else None,
        statistics=only(trained, statistics) if finite else memory.statistics,
        probabilities=draws.probabilities if keeps_probabilities(settings) else None,
        secret=secret,
    )


def keeps_probabilities(settings: Settings) -> bool:
    """Return whether a client must know later what it drew with; others find their probabilities anew."""
    return settings.measures_at_client or settings.scheme.sampling.from_local_model


def renew_at_client(
    model: nn.Module, task: RenewTask, data: Dataset, public: Dataset, settings: Settings, memory: ClientMemory
) -> tuple[RenewalReport, ClientMemory]:
    """`lipschitz_at = "client"`: compare the last local model with the global one and solve for the probabilities."""
    rule = settings.importance_sampling
    assert rule is not None and memory.probabilities is not None
    secure = settings.secure is not None  # then what follows from the local model stays here
    if memory.local_model is None:  # it has never had a model that was finite: nothing to compare, nothing changes
        unknown = None if secure else np.full(data.num_classes, np.nan)
        return RenewalReport(task.client, unknown, dropped=0, evaluations=0, seconds=0.0), memory
    start = time.perf_counter()
    local = copy.deepcopy(model)
    model.load_state_dict(task.model)
    # Statistics kept local stay out of the comparison, as they do at the server, which does not have them.
    shared = without(memory.local_model, frozenset(memory.statistics))
    local.load_state_dict({**task.model, **shared})
    estimate = estimate_lipschitz([local], model, *_on(model, public), data.num_classes, method=rule.estimator)
    shares = data.class_counts[None] / len(data)
    result = renew(rule, task.target[None], shares, memory.probabilities[None], estimate.values)
    report = RenewalReport(
        client=task.client,
        lipschitz=None if secure else estimate.values[0],
        dropped=0 if secure else int(estimate.dropped[0]),
        evaluations=estimate.gradient_evaluations,
        seconds=time.perf_counter() - start,
    )
    return report, replace(memory, probabilities=result.probabilities[0])


def observe_client(task: TrainTask, counts: Array, settings: Settings, memory: ClientMemory) -> Observation:
    """What a client with these counts and this memory drew with, or would have, given this task."""
    probabilities = _probabilities(task, counts, settings, memory)
    if settings.scheme.sampling.from_local_model and memory.probabilities is not None:
        probabilities = memory.probabilities
    return Observation(probabilities, counts / counts.sum())


def _probabilities(task: TrainTask, counts: Array, settings: Settings, memory: ClientMemory) -> Array:
    """What the server sent, what follows from the values it sent, what the client remembers from its own
    renewal, or what the rule starts with."""
    if task.probabilities is not None:
        return task.probabilities
    if settings.measures_at_client and memory.probabilities is not None:
        return memory.probabilities
    moments = None if task.moments is None else Moments.unpacked(task.moments)
    training = settings.training
    passes = training.local_epochs * training.sampling_ratio
    known = Known(counts, task.target, task.round, training.rounds, passes, task.lipschitz, moments)
    return settings.scheme.sampling.own_probabilities(known)


def _on(model: nn.Module, data: Dataset) -> tuple[Tensor, Tensor]:
    """All samples, where the model is."""
    device = next(model.parameters()).device
    inputs, labels = data.everything()
    return inputs.to(device), labels.to(device)
