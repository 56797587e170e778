"""Clients are never trusted: an update that cannot be right is refused, named and counted, and the round goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from isfl.federation.interface import ModelFacts
from isfl.federation.normalization import without
from isfl.federation.settings import Settings
from isfl.federation.values import (
    ClientProfile,
    ClientUpdate,
    FederationState,
    Refusal,
    RenewalReport,
    TrainTask,
    Weights,
)
from isfl.theory.arrays import Array

MOST_COST = 1e30
"""Larger than any number of seconds or gradients, and small enough to be added up."""


@dataclass(frozen=True)
class Admission:
    """What came of the answers of a round."""

    admitted: Sequence[ClientUpdate]
    """The updates to aggregate, ordered by client."""
    refused: Mapping[int, str]
    """Why other clients' answers are not used."""
    counted: Sequence[ClientUpdate]
    """All updates whose costs can be added up, admitted or not: they were paid for."""

    def refusing(self, reasons: Mapping[int, str]) -> Admission:
        """Return the same answers without these clients' updates among the admitted ones."""
        admitted = [update for update in self.admitted if update.client not in reasons]
        return replace(self, admitted=admitted, refused={**self.refused, **reasons}) if reasons else self


def admit(
    tasks: Sequence[TrainTask],
    answers: Sequence[ClientUpdate | Refusal],
    state: FederationState,
    settings: Settings,
    facts: ModelFacts,
) -> Admission:
    """Decide which answers can be aggregated; each client is heard once."""
    epochs = settings.training.local_epochs if settings.diagnostics.bound else None
    expected, sends_loss = without(state.model, facts.statistics), not settings.protects_at_client
    asked = {task.client for task in tasks}
    ordered = sorted(answers, key=lambda answer: answer.client)
    admitted: dict[int, ClientUpdate] = {}
    refused: dict[int, str] = {}
    for answer in ordered:
        if answer.client not in asked:
            refused[answer.client] = "was not asked"
        elif isinstance(answer, Refusal):
            refused[answer.client] = answer.reason
        elif answer.client in admitted:
            refused[answer.client] = "answered twice"
        elif reason := update_refusal(answer, expected, int(state.sizes[answer.client]), epochs, sends_loss):
            refused[answer.client] = reason
        else:
            admitted[answer.client] = answer
    for client in sorted(asked - admitted.keys() - refused.keys()):
        refused[client] = "did not answer"
    return Admission(
        admitted=[update for client, update in admitted.items() if client not in refused],
        refused=refused,
        counted=[answer for answer in ordered if isinstance(answer, ClientUpdate) and cost_refusal(answer) is None],
    )


def update_refusal(
    update: ClientUpdate, expected: Weights, num_samples: int, epochs: int | None, sends_loss: bool
) -> str | None:
    """Why this update must not be aggregated, or None. `expected` has the names, shapes and types of a good model.

    `epochs` is how many gradient norms and variances were asked for, None if none were.
    """
    if missing := sorted(expected.keys() - update.model.keys()):
        return f"lacks {missing[0]!r}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
    if extra := sorted(update.model.keys() - expected.keys()):
        return f"brings the unknown {extra[0]!r}"
    for name, value in update.model.items():
        if value.shape != expected[name].shape:
            return f"{name!r} has shape {tuple(value.shape)} instead of {tuple(expected[name].shape)}"
        if value.dtype != expected[name].dtype:
            return f"{name!r} has type {value.dtype} instead of {expected[name].dtype}"
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            return f"{name!r} is not finite"
    if update.num_samples != num_samples:
        return f"claims {update.num_samples} samples where it announced {num_samples}"
    loss = update.train_loss
    if (loss is None) is sends_loss or (loss is not None and not abs(loss) < MOST_COST):
        return f"reports a training loss of {update.train_loss}"
    for name, values in (("norms", update.gradient_norm), ("variances", update.gradient_variance)):
        if epochs is None and values is not None:
            return f"reports gradient {name} that it was not asked for"
        if epochs is not None and (values is None or not _measurements(values, epochs)):
            return f"reports gradient {name} that are not {epochs} finite numbers of at least 0"
    return cost_refusal(update)


def cost_refusal(answer: ClientUpdate | RenewalReport) -> str | None:
    """Why what it says of its own cost cannot be added up, or None."""
    costs: tuple[float, ...]
    if isinstance(answer, ClientUpdate):
        costs = (
            answer.training_evaluations,
            answer.sampling_evaluations,
            answer.training_seconds,
            answer.sampling_seconds,
            answer.diagnostic_seconds,
        )
    else:
        costs = (answer.dropped, answer.evaluations, answer.seconds)
    fine = all(0 <= cost < MOST_COST for cost in costs)
    return None if fine else f"reports costs that cannot be ({', '.join(f'{cost:g}' for cost in costs)})"


def renewal_refusal(report: RenewalReport, num_classes: int) -> str | None:
    """Why this report of private ISFL is not counted, or None. Unknown values (NaN) are fine."""
    known = np.where(np.isnan(report.lipschitz), 0.0, report.lipschitz)
    if not _measurements(known, num_classes):
        return f"reports Lipschitz values that are not {num_classes} finite numbers of at least 0"
    return cost_refusal(report)


def _measurements(values: Array, count: int) -> bool:
    return np.shape(values) == (count,) and bool((np.isfinite(values) & (values >= 0)).all())


def profile_refusal(profile: ClientProfile, num_classes: int, exact: bool, hidden: bool) -> str | None:
    """Why this client cannot take part at all, or None. `hidden`: class counts stay at the clients."""
    if profile.num_samples < 1:
        return f"has {profile.num_samples} samples"
    counts = profile.class_counts
    if counts is None:
        return None if hidden else "does not tell its class counts"
    if counts.shape != (num_classes,) or not np.isfinite(counts).all():
        return f"has class counts of shape {counts.shape} with {int((~np.isfinite(counts)).sum())} not finite"
    if exact and ((counts < 0).any() or (counts != np.floor(counts)).any() or counts.sum() != profile.num_samples):
        return f"has class counts that do not add up to its {profile.num_samples} samples"
    return None
