"""What a client does: introduce itself, train, and (private ISFL) renew its own probabilities.

Pure functions of values: the task that came, the client's own data and memory, the settings. The module
passed in is only a place to load weights into.
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
from isfl.federation.drawing import Stream, epoch_size, epochs_by_class, epochs_by_sample
from isfl.federation.initial import initialise
from isfl.federation.normalization import only, statistic_names, without
from isfl.federation.objectives import calibration, loss_term
from isfl.federation.renewal import own_probabilities, renew
from isfl.federation.scheme import GradientNorm, Moon
from isfl.federation.settings import NoisedTarget, Settings
from isfl.federation.training import train
from isfl.federation.values import (
    ClientMemory,
    ClientProfile,
    ClientUpdate,
    RenewalReport,
    RenewTask,
    TrainTask,
    Weights,
)
from isfl.randomness import Purpose, torch_randomness
from isfl.smoothness import estimate_lipschitz, sample_gradient_norms
from isfl.theory.arrays import Array


def introduce(client: int, data: Dataset, settings: Settings, noise: np.random.Generator) -> ClientProfile:
    """What the server is told at the start: class counts as they are, with noise, or not at all.

    `noise` must be the client's own secret in a deployment: whoever can repeat it can subtract it.
    """
    counts = data.class_counts.astype(np.float64)
    if isinstance(settings.target, NoisedTarget):
        counts += noise.laplace(scale=2.0 / settings.target.epsilon, size=data.num_classes)
        return ClientProfile(client, len(data), counts)
    return ClientProfile(client, len(data), None if settings.hides_counts else counts)


def train_client(
    model: nn.Module, task: TrainTask, data: Dataset, settings: Settings, memory: ClientMemory
) -> tuple[ClientUpdate, ClientMemory]:
    """Local training of one round (Algorithm 2, lines 3 to 6)."""
    scheme, training = settings.scheme, settings.training
    start = time.perf_counter()
    statistics = statistic_names(model) if training.batchnorm == "local" else frozenset[str]()
    model.load_state_dict({**task.model, **memory.statistics})
    if training.initial_models == "independent" and task.round == 1:
        initialise(model, settings.seed, task.client)

    stream = Stream(settings.seed, task.round, task.client)
    size, labels = epoch_size(len(data), training.sampling_ratio), data.labels.numpy()
    probabilities = _probabilities(task, data, settings, memory)
    evaluations, loss_weights = 0, None
    if isinstance(scheme.sampling, GradientNorm) and task.round > 1:
        weights = _by_gradient_norm(model, data)
        by_sample = weights / weights.sum()
        probabilities = np.asarray(np.bincount(labels, by_sample, data.num_classes), dtype=np.float64)
        draw, evaluations = epochs_by_sample(by_sample, size, stream), len(data)
        if scheme.sampling.unbiased:
            loss_weights = torch.from_numpy(1.0 / (len(data) * np.where(by_sample > 0, by_sample, 1.0))).float()
    else:
        draw = epochs_by_class(scheme.sampling, labels, probabilities, size, stream)
    sampling_seconds = time.perf_counter() - start

    offset = calibration(probabilities, task.target) if scheme.objective.calibrate else None
    with (
        torch_randomness(settings.seed, Purpose.DROPOUT, round=task.round, client=task.client),
        loss_term(scheme.objective, model, task.model, memory.local_model) as term,
    ):
        result = train(
            model,
            data,
            draw,
            training,
            training.optimizer_in(task.round),
            augment=augmentation(training.augment, settings.seed, task.round, task.client),
            loss_weights=loss_weights,
            logit_offset=offset,
            term=term,
            measure_noise=settings.diagnostics.bound,
        )

    trained: Weights = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    update = ClientUpdate(
        client=task.client,
        num_samples=len(data),
        model=without(trained, statistics),
        train_loss=result.loss,
        training_evaluations=result.samples,
        sampling_evaluations=evaluations,
        training_seconds=time.perf_counter() - start - sampling_seconds - result.noise_seconds,
        sampling_seconds=sampling_seconds,
        diagnostic_seconds=result.noise_seconds,
        gradient_norm=result.gradient_norm,
        gradient_variance=result.gradient_variance,
    )
    remembers = isinstance(scheme.objective, Moon) or settings.measures_at_client
    finite = all(bool(torch.isfinite(value).all()) for value in trained.values())
    return update, ClientMemory(
        # A model that diverged is refused by the server; remembered, it would spoil every round to come.
        local_model=(trained if finite else memory.local_model) if remembers else None,
        statistics=only(trained, statistics) if finite else memory.statistics,
        probabilities=probabilities,
    )


def renew_at_client(
    model: nn.Module, task: RenewTask, data: Dataset, public: Dataset, settings: Settings, memory: ClientMemory
) -> tuple[RenewalReport, ClientMemory]:
    """`lipschitz_at = "client"`: compare the last local model with the global one and solve for the probabilities."""
    rule = settings.importance_sampling
    assert rule is not None and memory.probabilities is not None
    if memory.local_model is None:  # it has never had a model that was finite: nothing to compare, nothing changes
        unknown = np.full(data.num_classes, np.nan)
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
        lipschitz=estimate.values[0],
        dropped=int(estimate.dropped[0]),
        evaluations=estimate.gradient_evaluations,
        seconds=time.perf_counter() - start,
    )
    return report, replace(memory, probabilities=result.probabilities[0])


def _probabilities(task: TrainTask, data: Dataset, settings: Settings, memory: ClientMemory) -> Array:
    """What the server sent, what follows from the Lipschitz values it sent, what the client remembers from its own
    renewal, or what the rule starts with."""
    if task.probabilities is not None:
        return task.probabilities
    if settings.measures_at_client and memory.probabilities is not None:
        return memory.probabilities
    return own_probabilities(
        settings.scheme.sampling, data.class_counts.astype(np.float64), task.target, task.lipschitz
    )


def _by_gradient_norm(model: nn.Module, data: Dataset) -> Array:
    """ISFedAvg's weights. Samples whose gradient is not finite get none; if nothing is left, all get the same."""
    norms = sample_gradient_norms(model, *_on(model, data)).numpy()
    weights = np.where(np.isfinite(norms), norms, 0.0)
    return weights if weights.sum() > 0 else np.ones(len(data))


def _on(model: nn.Module, data: Dataset) -> tuple[Tensor, Tensor]:
    """All samples, where the model is."""
    device = next(model.parameters()).device
    inputs, labels = data.everything()
    return inputs.to(device), labels.to(device)
